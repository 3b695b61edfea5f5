"""Open the weights that `--weights` names: a weights file, a run (its folder or log) or a snapshot.

The weights of a run are its final weights, or those of its newest snapshot if it has no final ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from bertbench.checkpoint.snapshot_folder import META_NAME, Meta, newest, verified
from bertbench.checkpoint.weights_file import Weights, expected_tensors
from bertbench.common.errors import CheckpointError
from bertbench.common.system_faults import exists
from bertbench.config.sections import Model
from bertbench.data.store.manifest import file_sha256
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import logical_weights
from bertbench.runs.files import ResultFiles

_EXPECTED = "a weights file, a run's folder or log (result_<n>, result_<n>.txt), or a snapshot's folder (step_<k>)"


def open_weights(path: Path) -> Weights:
    """Open the weights that `path` names; their tensors stay on disk.

    Raises CheckpointError if there are none, or if they are damaged.
    """
    if not exists(path, CheckpointError):
        raise CheckpointError(f"{path}: no such file or folder; expected {_EXPECTED}")
    if (path / META_NAME).is_file():
        return SnapshotWeights.of(path, verified(path))
    if path.is_dir():
        return _of_run(ResultFiles(Path(f"{path}.txt")))
    if path.is_file() and path.suffix == ".txt":
        return _of_run(ResultFiles(path))
    return Weights.open(path)


def newest_run(runs: Path) -> Path:
    """Return the folder of the newest run with weights. Raises CheckpointError if there is none."""
    runs_with_weights = []
    for log in runs.glob("*/bert/result_*.txt"):
        files = ResultFiles(log)
        if files.weights.exists() or any(files.snapshots.glob(f"*/{META_NAME}")):
            runs_with_weights.append((log.stat().st_mtime, files.folder))
    if not runs_with_weights:
        raise CheckpointError(
            f"{runs}: found no run with weights; train one with `bertbench launch cpu_demo`, or give --weights"
        )
    return max(runs_with_weights)[1]


@dataclass(frozen=True)
class SnapshotWeights(Weights):
    """The weights of a verified snapshot, as evaluations read them; `path` is its folder."""

    evaluated: str = "model"
    """The part of the state that evaluations read: the model, or its average."""

    @classmethod
    def of(cls, folder: Path, meta: Meta) -> "SnapshotWeights":
        """Return the weights of a snapshot; raises CheckpointError if its configuration has no model."""
        try:
            shape = Model.model_validate(meta.config["model"]).shape()
        except (KeyError, ValidationError) as error:
            raise CheckpointError(f"{folder / META_NAME}: has no model sizes; name another snapshot") from error
        vocabulary = _vocabulary(folder)
        entries = len(Vocabulary.read(vocabulary)) if vocabulary.exists() else shape.vocab_size
        source = f"a snapshot of {meta.config['name']}, seed {meta.seed}, after {meta.samples:,} samples"
        evaluated = "average" if meta.config["optimizer"]["ema_decay"] else "model"
        return cls(folder, shape, entries, source, expected_tensors(shape), evaluated)

    def read_some(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the named tensors, on the CPU, from a snapshot of any layout. This reads all tensors."""
        from bertbench.checkpoint.state_files import read_state  # noqa: PLC0415 - only a snapshot's weights need it

        with torch.device("meta"):
            model = Bert(self.shape)
        model.to_empty(device="cpu")
        state = {f"{self.evaluated}.{name}": tensor for name, tensor in logical_weights(model).items()}
        read_state(state, self.path, None)
        tensors = model.state_dict()
        return {name: tensors[name] for name in names}

    @property
    def vocabulary(self) -> Path:
        """Return the path of the run's vocabulary."""
        return _vocabulary(self.path)

    def sha256(self) -> str:
        """Return the checksum of meta.json, which has the checksums of all other files."""
        return file_sha256(self.path / META_NAME)


def _of_run(files: ResultFiles) -> Weights:
    if exists(files.weights, CheckpointError):
        return Weights.open(files.weights)
    snapshot = newest(files.snapshots)
    if snapshot is None:
        raise CheckpointError(
            f"{files.folder}: found neither final weights nor a complete snapshot; name another ({_EXPECTED}), or "
            "train with checkpoint.final_weights=true or checkpoint.every_steps set"
        )
    return SnapshotWeights.of(*snapshot)


def _vocabulary(snapshot: Path) -> Path:
    return ResultFiles(Path(f"{snapshot.parent.parent}.txt")).vocabulary
