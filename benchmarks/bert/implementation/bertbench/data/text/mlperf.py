"""`data prepare --recipe mlperf`: make exactly the reference's samples from MLPerf's processed text.

Each text file is one run of the reference's generator, so files are independent (data/store/parts.py). The samples keep
the reference's order; data/store/shuffle.py shuffles them.
"""

import os
import shutil
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import MappedShard
from bertbench.data.store.manifest import TOKENIZER_VERSION, Manifest, ShardFile
from bertbench.data.store.parts import InputFile, made_of, recorded, sources_of
from bertbench.data.store.shards import check_place, finish_split, write_split
from bertbench.data.text.corpus import text_articles
from bertbench.data.text.prepare import best_guess, tokenize, warn_of_one_article
from bertbench.data.text.sentence_pairs import SampleOptions, create_samples
from bertbench.data.text.vocabulary import Vocabulary, tokenizer_of

SHARD_SAMPLES = 65_536  # 50 MB of Wikipedia samples


@dataclass(frozen=True)
class MlperfRecipe:
    """The reference's command-line options; the other numbers are MLPerf's (training rules, dataset.md)."""

    dupe_factor: int = 10
    seed: int = 12345
    select_eval: int | None = None
    """Keep this many samples, every (N / select_eval)-th, as the evaluation split."""

    def options(self) -> SampleOptions:
        """Return MLPerf's options: length 512, 10 % short sequences, and 15 % masked tokens, but at most 76."""
        return SampleOptions(
            max_seq_length=512,
            dupe_factor=self.dupe_factor,
            short_seq_prob=0.1,
            masked_lm_prob=0.15,
            max_predictions_per_seq=76,
        )


def prepare_mlperf(
    out: Path, files: tuple[Path, ...], vocab: Path, recipe: MlperfRecipe, workers: int, progress: Progress
) -> tuple[Manifest, bool]:
    """Make the dataset `out`; return its manifest and whether it was already there.

    Raises DataError if a file can't be read, or as `made_of` does.
    """
    vocabulary = Vocabulary.read(vocab)
    check_place(out)
    texts = sources_of(files, progress)
    request: dict[str, Any] = {
        "recipe": {"name": "mlperf", **asdict(recipe)},
        "source": {"text": recorded(texts)},
        "vocab_sha256": vocabulary.sha256,
    }
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker uses one core
    make = partial(_make_part, vocabulary=vocabulary, recipe=recipe)
    assemble = partial(_assemble, vocabulary, recipe, request)
    return made_of(out, "train", request, texts, make, assemble, workers, progress)


def _make_part(folder: Path, text: InputFile, vocabulary: Vocabulary, recipe: MlperfRecipe) -> list[ShardFile]:
    """Run the generator once: write the samples of one file into `folder` as shards."""
    documents = tokenize(list(text_articles(text.path)), vocabulary)
    if not documents:
        raise DataError(
            f"{text.path}: holds no text; expected text with one sentence per line and a blank line between articles"
        )
    warn_of_one_article(str(text.path), documents)
    samples = create_samples(documents, vocabulary.ids, recipe.options(), recipe.seed)
    return text.write(folder, samples, SHARD_SAMPLES)


def _assemble(
    vocabulary: Vocabulary, recipe: MlperfRecipe, request: dict[str, Any], work: Path, shards: list[ShardFile]
) -> Manifest:
    """Put the finished parts together, or select the evaluation samples from them."""
    vocabulary.write(work)
    manifest = Manifest(request=request, tokenizer_version=TOKENIZER_VERSION, tokenizer=tokenizer_of(vocabulary))
    if recipe.select_eval is None:
        return replace(manifest, train=finish_split(work / "train", shards))
    chosen = _selected(work / "train", shards, recipe.select_eval)
    shutil.rmtree(work / "eval", ignore_errors=True)
    evaluation = write_split(work / "eval", [chosen], SHARD_SAMPLES)
    shutil.rmtree(work / "train")
    return replace(manifest, eval=evaluation, most_frequent_token=best_guess(chosen.masked_lm_ids, vocabulary))


def _selected(folder: Path, shards: list[ShardFile], count: int) -> Columns:
    """Return samples int(i * N / count) of all N, as MLPerf picks its 10,000 (pick_eval_samples.py)."""
    total = sum(shard.samples for shard in shards)
    if total < count:
        raise DataError(
            f"the text gives {total:,} samples, expected at least {count:,} to select; give more text or files"
        )
    chosen = np.array([int(place * (total / count)) for place in range(count)])
    blocks = []
    first = 0
    for shard in shards:
        rows = chosen[(chosen >= first) & (chosen < first + shard.samples)] - first
        if len(rows):
            blocks.append(MappedShard(folder / shard.name, shard.samples).content().take(rows))
        first += shard.samples
    return Columns.joined(blocks)
