"""Make and read small datasets of given samples or texts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertbench.common.progress import Progress
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset, shard_blocks
from bertbench.data.store.manifest import Manifest, SplitName
from bertbench.data.store.shards import write_split
from bertbench.data.text.mlperf import MlperfRecipe, prepare_mlperf
from bertbench.data.text.vocabulary import SPECIAL_TOKENS
from tests.tiny import WORDS, Sample, columns_of, samples_of

QUIET = Progress(False)


def written(folder: Path, samples: Sequence[Sample], shard_samples: int) -> Dataset:
    """The samples as the training split of a dataset without a manifest."""
    split = write_split(folder / "train", [columns_of(samples)], shard_samples)
    return Dataset(folder, "train", split, np.load(folder / "train" / "index.npy"))


def read(folder: Path, name: SplitName = "train") -> list[Sample]:
    """All samples of a split, in order."""
    dataset = Dataset.open(folder, name)
    blocks = [block for shard in range(len(dataset.split.shards)) for block in shard_blocks(dataset, shard)]
    return samples_of(Columns.joined(blocks))


def made(
    out: Path, files: Sequence[Path], vocab: Path, recipe: MlperfRecipe, workers: int = 1
) -> tuple[Manifest, bool]:
    """The dataset that MLPerf's recipe makes of texts, and whether it existed already."""
    return prepare_mlperf(out, tuple(files), vocab, recipe, workers, QUIET)


def vocabulary_of_words(path: Path) -> Path:
    """A vocab.txt for tiny_text, all but the word `text`."""
    path.write_text("\n".join((*SPECIAL_TOKENS, *WORDS[:-1], ".", "e", "##n")) + "\n")
    return path
