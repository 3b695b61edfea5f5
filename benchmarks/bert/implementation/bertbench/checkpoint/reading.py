"""Read a snapshot without trusting its files: torch reads `.metadata` with pickle, which can run code.

This reader only admits the few classes that a snapshot of tensors needs, and refuses anything else before creating it.
torch reads the tensors themselves as weights only.
"""

import pickle
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemReader
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
"""Names by module."""
_MOVED = {"pathlib._local": "pathlib"}
"""Where Python 3.13 says that a path's class is; 3.11 and 3.12 have no such module."""


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
        """Return the tensors' places.

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


def _refused(path: Path, found: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: {found}, which bertbench's snapshots never do; resume from another one, and find out who wrote this"
    )
