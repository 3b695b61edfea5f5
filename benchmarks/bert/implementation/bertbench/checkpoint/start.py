"""Check the weights that a run starts from, before its clock starts. Only their header is read."""

from pathlib import Path

from bertbench.checkpoint.run_weights import open_weights
from bertbench.checkpoint.weights_file import Weights
from bertbench.common.errors import ConfigError
from bertbench.common.paths import data_path
from bertbench.config import System
from bertbench.config.closed import CHECKPOINT
from bertbench.config.load import RUN_CONFIG
from bertbench.data.store.manifest import Manifest


def check_start(system: System) -> None:
    """Check a run's initial weights, if its system names any.

    Raises the errors of `check_weights`, and ConfigError if a closed run doesn't start from MLPerf's checkpoint.
    """
    if system.model.checkpoint is None:
        return
    path = data_path(system.model.checkpoint)
    source = check_weights(system, path).source
    if system.hardware.division == "closed" and not source.endswith(CHECKPOINT):
        raise ConfigError(
            f"{path}: found weights of {source}, but the closed division starts from MLPerf's {CHECKPOINT} (rule "
            "closed-checkpoint); import that (docs/data.md), or set hardware.division to open"
        )


def one_checkpoint(system: System, option: str, given: Path) -> None:
    """Raise ConfigError if the user gave both an option that names weights and model.checkpoint."""
    if setting := system.given.get("model.checkpoint"):
        raise ConfigError(f"{option} {given} and {setting} both name weights; leave one of them out")


def weights_of(system: System) -> Path:
    """Return the path of a system's weights: those of the run that it comes from, or else model.checkpoint.

    Raises ConfigError if it names none.
    """
    config = Path(system.argument)
    if config.name == RUN_CONFIG:
        return config.parent
    if system.model.checkpoint is None:
        raise ConfigError(f"{system.name}: has no model.checkpoint; name a weights file with --weights, or a run")
    return data_path(system.model.checkpoint)


def check_weights(system: System, path: Path, entries: int | None = None) -> Weights:
    """Open weights and check that they fit the system's model and a vocabulary of `entries`, without reading tensors.

    Without `entries`, the vocabulary is that of the system's dataset.

    Raises CheckpointError if they can't be read or belong to another model, and ConfigError if they belong to another
    vocabulary.
    """
    weights = open_weights(path)
    weights.check_fits(system.model.shape())
    if entries is None:
        entries = Manifest.read(data_path(system.data.path)).tokenizer.vocab_size
    if entries > weights.real_vocab_size:
        raise ConfigError(
            f"{path}: has a vocabulary of {weights.real_vocab_size:,} entries, but the data's has {entries:,}; "
            "use the vocabulary of the checkpoint, also when you prepare a dataset"
        )
    return weights
