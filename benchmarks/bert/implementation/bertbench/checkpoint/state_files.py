"""Write and read a run's state with torch's distributed checkpoint. Importing that takes 0.4 s.

Files aren't trusted. torch reads `.metadata` with pickle, which can run code, so this reader only admits the few
classes that a snapshot of tensors needs, and refuses anything else before creating it. torch reads the tensors
themselves in its weights-only mode.
"""

import pickle
import warnings
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup, checkpoint
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from bertbench.common.errors import CheckpointError
from bertbench.common.system_faults import unreadable

_FILE = ".metadata"
_ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "TensorProperties", "_MEM_FORMAT_ENCODING",
        "MetadataIndex", "StorageMeta",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "float32", "float64", "int64", "uint8"},
    "pathlib": {"PosixPath"},
}  # fmt: skip
"""The names that a snapshot may contain, by module."""
_MOVED = {"pathlib._local": "pathlib"}
"""Python 3.13 writes that the class of paths is in the module on the left, which 3.11 and 3.12 don't have."""


def begin_write(state: dict[str, Tensor], folder: Path, group: ProcessGroup) -> "Future[object]":
    """Copy the state to main memory, and begin to write it. Collective."""
    writer = checkpoint.FileSystemWriter(folder, sync_files=True)
    written = checkpoint.async_save(state, storage_writer=writer, process_group=group)
    assert isinstance(written, Future)
    return written


def end_write(written: "Future[object]") -> None:
    """Wait until all ranks have written; raises CheckpointError with the reason of the first rank that failed."""
    try:
        written.result()
    except CheckpointException as error:
        raise CheckpointError(_reason(error)) from error


def read_state(state: dict[str, Tensor], folder: Path, group: ProcessGroup | None) -> None:
    """Fill the state from a snapshot, with all ranks of `group` or, without one, in this process alone.

    Raises CheckpointError if a file isn't a snapshot's, or doesn't fit the state.
    """
    reader = SnapshotReader(folder)
    reader.read_metadata()  # refuse other files here, before a collective begins
    try:
        with warnings.catch_warnings():  # torch warns that no_dist is on, as requested
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            checkpoint.load(state, storage_reader=reader, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        _, cause = _first_failure(error)
        if isinstance(cause, OSError):
            raise CheckpointError(unreadable(Path(cause.filename or folder), cause, "copy it again")) from error
        raise CheckpointError(
            f"{folder}: doesn't fit this run ({_reason(error)}); undo the changes to model, optimizer and precision"
        ) from error


def _reason(error: CheckpointException) -> str:
    """Return the reason in one line: that of the first rank that failed."""
    rank, cause = _first_failure(error)
    return f"rank {rank}: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}"


def _first_failure(error: CheckpointException) -> tuple[int, BaseException]:
    rank, (cause, _) = min(error.failures.items())
    return rank, cause


class _TensorsOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = _MOVED.get(module, module)
        if name not in _ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"asks for {module}.{name}")
        return super().find_class(module, name)


class SnapshotReader(FileSystemReader):
    """torch's reader, with a safe reader of `.metadata`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Return where each tensor is stored.

        Raises CheckpointError if the file can't be read, or holds anything but places in the snapshot's own files.
        """
        path = self._folder / _FILE
        try:
            with path.open("rb") as file:
                metadata = _TensorsOnly(file).load()
        except OSError as error:
            raise CheckpointError(unreadable(path, error, "resume from another snapshot")) from error
        except (pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError) as error:
            raise _refused(path, str(error)) from error
        if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
            raise _refused(path, "holds no metadata")
        if not all(isinstance(kind, TensorStorageMetadata) for kind in metadata.state_dict_metadata.values()):
            raise _refused(path, "holds something other than tensors")
        if any(Path(info.relative_path).name != info.relative_path for info in metadata.storage_data.values()):
            raise _refused(path, "names a file outside the snapshot")
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def _refused(path: Path, fault: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: {fault}; bertbench never writes such a snapshot: resume from another, and find out who wrote this one"
    )
