"""What a run reads before its clock starts: the dataset's metadata and the header of the weights it starts from."""

import shlex
from pathlib import Path

from bertbench.common.errors import ConfigError, DataError
from bertbench.common.paths import data_folder
from bertbench.config import System
from bertbench.data.store.dataset import Dataset, SplitName
from bertbench.data.store.manifest import Manifest
from bertbench.weights.file import Weights


def open_data(system: System) -> tuple[Dataset, Dataset]:
    """The training and the evaluation split: metadata only, so it is not on the clock.

    Raises DataError if the data is not there or damaged, ConfigError if it doesn't fit the model.
    """
    training, evaluation = open_split(system, "train"), open_split(system, "eval")
    if Manifest.read(training.folder).tokenizer != Manifest.read(evaluation.folder).tokenizer:
        raise DataError(
            f"{training.folder} and {evaluation.folder} use different vocabularies; prepare both with the same --vocab"
        )
    return training, evaluation


def _making(system: System, folder: Path) -> str:
    """Return how to make a dataset: by the system's recipe, or from MLCommons' files where it has none."""
    if system.data.recipe is not None:
        return f"make it with `bertbench data prepare --system {shlex.quote(system.argument)}`"
    return (
        "make it of MLCommons' text (docs/data.md) with `bertbench data prepare --recipe mlperf --text FILE "
        f"--vocab FILE --out {shlex.quote(str(folder))}`"
    )


def open_split(system: System, name: SplitName) -> Dataset:
    """One split of the system's data; raises what `open_data` raises."""
    evaluation = name == "eval" and system.data.eval_path
    folder = data_folder(evaluation or system.data.path)
    if not folder.exists():
        raise DataError(f"{folder}: found no dataset; {_making(system, folder)}, or set DATADIR")
    entries = Manifest.read(folder).tokenizer.vocab_size
    if entries > system.model.vocab_size:
        raise ConfigError(
            f"{folder}: the vocabulary has {entries:,} entries, model.vocab_size is {system.model.vocab_size:,}; "
            "raise model.vocab_size to at least as much"
        )
    split = Dataset.open(folder, name)
    if split.split.longest > system.model.max_positions:
        raise ConfigError(
            f"{folder}: the longest {name} sample has {split.split.longest} tokens, model.max_positions is "
            f"{system.model.max_positions}; raise it to at least as much"
        )
    return split


def check_weights(system: System, path: Path) -> Weights:
    """The weights of a file, which must fit the system's model and its dataset; reads the header only.

    Raises CheckpointError if they can't be read or belong to another model, ConfigError if to another vocabulary.
    """
    weights = Weights.open(path)
    weights.check_fits(system.model.shape())
    entries = Manifest.read(data_folder(system.data.path)).tokenizer.vocab_size
    if entries > weights.real_vocab_size:
        raise ConfigError(
            f"{path}: knows a vocabulary of {weights.real_vocab_size:,} entries, the dataset's has {entries:,}; "
            "prepare the data with the vocabulary of the checkpoint"
        )
    return weights
