"""`data prepare --recipe mlperf`: make exactly the reference's samples from MLPerf's processed text.

Each text file is one run of the reference's generator, so files are independent: workers take them one by one, and
a restart continues with the unfinished files. The samples keep the reference's order;
data/store/shuffle.py shuffles them.
"""

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from bertbench import __version__
from bertbench.common.atomic import scratch_folder, write_state
from bertbench.common.errors import DataError, system_reason
from bertbench.common.progress import Progress
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import MappedShard, shard_entries
from bertbench.data.store.manifest import TOKENIZER_VERSION, VOCAB_NAME, Guess, Manifest, ShardFile, Split, existing
from bertbench.data.store.shards import finish_split, regrouped, source_sha256, write_shard, write_split
from bertbench.data.text.corpus import text_articles
from bertbench.data.text.prepare import best_guess, tokenize
from bertbench.data.text.samples import SampleOptions, TokenIds, create_samples
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
        """Return MLPerf's options: length 512, 10 % short sequences, 15 % masked, at most 76 of them."""
        return SampleOptions(512, self.dupe_factor, 0.1, 0.15, 76)


def prepare_mlperf(
    out: Path, files: tuple[Path, ...], vocab: Path, recipe: MlperfRecipe, workers: int, progress: Progress
) -> tuple[Manifest, bool]:
    """Make the dataset `out`; return its manifest and whether it was already there.

    Raises DataError if `out` holds another dataset, a file can't be read, the disk is full, or a worker was killed.
    The same command then resumes from the finished files in a hidden folder beside `out`.
    """
    vocabulary = Vocabulary.read(vocab)
    texts = [_Text(number, path, source_sha256(path)) for number, path in enumerate(files)]
    request: dict[str, Any] = {
        "recipe": {"name": "mlperf", **asdict(recipe)},
        "source": {"text": [[text.path.name, text.sha256] for text in texts]},
        "vocab_sha256": vocabulary.sha256,
    }
    if out.exists():
        there = existing(out, request)
        if problem := there.tokenizer_problem():
            raise DataError(f"{out}: {problem}")
        return there, True
    work = out.with_name(f".{out.name}.unfinished")
    try:
        _make_parts(work, texts, vocab, recipe, workers, progress)
        manifest = _assemble(work, texts, vocabulary, recipe, request)
        manifest.write(work)
        work.replace(out)
    except OSError as error:
        raise DataError(
            f"{work}: {system_reason(error)}; finished files are kept there; make room and run the same command again"
        ) from error
    return manifest, False


@dataclass(frozen=True)
class _Text:
    """One text file and its number."""

    number: int
    path: Path
    sha256: str

    def finished(self, work: Path) -> Path:
        """Return the file that lists this text's shards; it exists once they are written from this content."""
        return work / f"part_{self.number:05d}_{self.sha256[:16]}.json"

    def shards(self, work: Path) -> list[ShardFile]:
        """Return the written shards."""
        return [ShardFile(**shard) for shard in json.loads(self.finished(work).read_text())]


def _make_parts(
    work: Path, texts: list[_Text], vocab: Path, recipe: MlperfRecipe, workers: int, progress: Progress
) -> None:
    """Make the parts that `work` lacks, all of them if those there were made differently; keep each as it finishes."""
    asked = json.dumps([asdict(recipe), source_sha256(vocab), TOKENIZER_VERSION])
    request = work / "request.json"
    if not request.exists() or request.read_text() != asked:
        shutil.rmtree(work, ignore_errors=True)
    missing = [text for text in texts if not text.finished(work).exists()]
    if len(missing) < len(texts):
        progress.message(f"{len(texts) - len(missing)} of {len(texts)} files were finished before")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a worker is one core
    if not work.parent.exists():
        work.parent.mkdir(parents=True)
    with scratch_folder(work) as scratch:
        if min(workers, len(missing)) > 1:
            made = _in_workers(scratch, missing, vocab, recipe, min(workers, len(missing)))
        else:
            made = ((text, _make_part(scratch, text, vocab, recipe)) for text in missing)
        for count, (text, shards) in enumerate(made, start=1):
            (work / "train").mkdir(parents=True, exist_ok=True)
            request.write_text(asked)
            for stale in (work / "train").glob(f"part_{text.number:05d}_*.h5"):
                stale.unlink()
            for shard in shards:
                (scratch / shard.name).replace(work / "train" / shard.name)
            write_state(text.finished(work), [asdict(shard) for shard in shards])
            progress.message(f"file {count} of {len(missing)}: {sum(shard.samples for shard in shards):,} samples")


def _in_workers(
    scratch: Path, texts: list[_Text], vocab: Path, recipe: MlperfRecipe, workers: int
) -> Iterator[tuple[_Text, list[ShardFile]]]:
    """Make the parts in worker processes; yield each text with its shards as it finishes."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        made = {pool.submit(_make_part, scratch, text, vocab, recipe): text for text in texts}
        try:
            for part in as_completed(made):
                yield made[part], part.result()
        except BrokenProcessPool as error:
            raise DataError(
                "a worker process was killed, perhaps because memory ran out; finished files are kept, "
                "run the same command again, with fewer --workers"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _make_part(folder: Path, text: _Text, vocab: Path, recipe: MlperfRecipe) -> list[ShardFile]:
    """Run the generator once: write the samples of one file into `folder` as shards."""
    vocabulary = Vocabulary.read(vocab)
    documents = tokenize(list(text_articles(text.path)), vocabulary)
    if not documents:
        raise DataError(f"{text.path}: holds no text; expected one sentence a line, a blank line between articles")
    ids = TokenIds(vocabulary.id("[CLS]"), vocabulary.id("[SEP]"), vocabulary.id("[MASK]"), len(vocabulary))
    samples = create_samples(documents, ids, recipe.options(), recipe.seed)
    return [
        write_shard(folder / f"part_{text.number:05d}_{place:02d}.h5", block)
        for place, block in enumerate(regrouped(samples, SHARD_SAMPLES))
    ]


def _assemble(
    work: Path, texts: list[_Text], vocabulary: Vocabulary, recipe: MlperfRecipe, request: dict[str, Any]
) -> Manifest:
    """Put the finished parts together, or select the evaluation samples from them."""
    folder = work / "train"
    shards = [shard for text in texts for shard in text.shards(work)]
    train, evaluation, guess = None, None, None
    if recipe.select_eval is None:
        train = finish_split(folder, shards, shard_entries(folder, shards))
    else:
        evaluation, guess = _selected(work, shards, recipe.select_eval, vocabulary)
        shutil.rmtree(folder)
    for path in work.glob("*.json"):  # what the restart needed
        path.unlink()
    (work / VOCAB_NAME).write_text(vocabulary.text, encoding="utf-8")
    return Manifest(
        request=request,
        tool_version=__version__,
        tokenizer_version=TOKENIZER_VERSION,
        documents=None,
        tokenizer=tokenizer_of(vocabulary),
        most_frequent_token=guess,
        train=train,
        eval=evaluation,
    )


def _selected(work: Path, shards: list[ShardFile], count: int, vocabulary: Vocabulary) -> tuple[Split, Guess]:
    """Select samples int(i * N / count) of all N, as MLPerf picks its 10,000 (pick_eval_samples.py)."""
    total = sum(shard.samples for shard in shards)
    if total < count:
        raise DataError(
            f"the text gives {total:,} samples, expected at least {count:,} to select; give more text or files"
        )
    chosen = np.array([int(place * (total / count)) for place in range(count)])
    blocks, first = [], 0
    for shard in shards:
        rows = chosen[(chosen >= first) & (chosen < first + shard.samples)] - first
        if len(rows):
            blocks.append(MappedShard(work / "train" / shard.name, shard.samples).content().take(rows))
        first += shard.samples
    evaluation = Columns.joined(blocks)
    shutil.rmtree(work / "eval", ignore_errors=True)
    return write_split(work / "eval", [evaluation], SHARD_SAMPLES), best_guess(evaluation, vocabulary)
