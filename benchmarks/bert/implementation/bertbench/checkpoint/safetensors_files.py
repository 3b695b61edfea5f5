"""Read safetensors files (one, or the shards of an index) and write weights to new paths, with clear errors.

The library reports most faults as "no such file"; this module gives the real reason.

An index is Hugging Face's model.safetensors.index.json: `weight_map` gives the shard of each tensor.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertbench.checkpoint.pickles import refuse_pickles
from bertbench.common.atomic import new_file
from bertbench.common.compressed import unpacking
from bertbench.common.errors import CheckpointError
from bertbench.common.json_object import read_as
from bertbench.common.system_faults import exists, systems_error, unreadable, unwritable

_LFS_POINTER = b"version https://git-lfs"
_FILE_NAME = re.compile(r"(?!\.{1,2}\Z)[^/\0]+")


class _Index(BaseModel):
    weight_map: dict[str, str]


@dataclass(frozen=True)
class TensorFiles:
    """The tensors of a model; they stay on disk until they are read."""

    path: Path
    """The file, or the index of several."""
    file_of: dict[str, Path]
    """The file of each tensor, by the tensor's name."""
    remedy: str
    """What a user can do about a damaged or missing file, for error messages."""

    @classmethod
    def open(cls, path: Path, remedy: str) -> "TensorFiles":
        """Read the headers of a safetensors file, or of all shards of an index.

        Raises CheckpointError if a file can't be read, or if an index names a file in another folder or a tensor that
        its shard doesn't have.
        """
        if path.suffix != ".json":
            return cls(path, dict.fromkeys(_names(path, remedy), path), remedy)
        index: _Index = read_as(path, _Index, CheckpointError, remedy)
        shards = dict.fromkeys(index.weight_map.values())
        if outside := [shard for shard in shards if not _FILE_NAME.fullmatch(shard)]:
            raise CheckpointError(f"{path}: names {outside[0]!r}, expected files in its own folder; {remedy}")
        missing_shard = f"{path.name} lists it: copy all files of the model"
        names = {shard: _names(path.with_name(shard), missing_shard) for shard in shards}
        file_of = {name: path.with_name(shard) for shard in shards for name in names[shard]}
        for name, shard in index.weight_map.items():
            if name not in names[shard]:
                raise CheckpointError(f"{path}: names {name} in {shard}, which doesn't have it; {remedy}")
            file_of[name] = path.with_name(shard)
        return cls(path, file_of, remedy)

    def read(self, name: str) -> Tensor:
        """Return one tensor. Raises CheckpointError if it can't be read."""
        with opened(self.file_of[name], self.remedy) as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    def rows(self, name: str) -> int:
        """Return the first size of a tensor; 0 for a single number. Raises CheckpointError if it can't be read."""
        with opened(self.file_of[name], self.remedy) as file:
            sizes: list[int] = file.get_slice(name).get_shape()
        return sizes[0] if sizes else 0


def _names(path: Path, remedy: str) -> list[str]:
    with opened(path, remedy) as file:
        return list(file.keys())


@contextmanager
def opened(path: Path, remedy: str) -> Iterator[Any]:
    """Open a safetensors file for the body.

    Raises CheckpointError if it can't be read. If the machine is at fault, the message says what to do about that; if
    the file is damaged or missing, it ends with `remedy`.
    """
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(_LFS_POINTER))
    except OSError as error:
        raise CheckpointError(unreadable(path, error, remedy)) from error
    if beginning == _LFS_POINTER:
        raise CheckpointError(f"{path}: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, MemoryError, SafetensorError) as error:
        reason = systems_error(error)
        if reason is None:
            refuse_pickles(path, remedy)
            fault = f"is not a complete safetensors file ({error}); {remedy}"
            raise CheckpointError(f"{path}: {unpacking(path) or fault}") from error
        raise CheckpointError(unreadable(path, reason, remedy)) from reason


@contextmanager
def writing(path: Path, new: Callable[[Path], AbstractContextManager[Path]] = new_file) -> Iterator[Path]:
    """Yield a temporary file, or folder with new_folder, that becomes `path` if the body succeeds.

    Raises CheckpointError if `path` exists, or if the body can't write it.
    """
    check_new(path)
    try:
        with new(path) as unfinished:
            yield unfinished
    except OSError as error:
        raise CheckpointError(unwritable(path, error, "choose another place")) from error
    except SafetensorError as error:
        reason = systems_error(error) or OSError(str(error))
        raise CheckpointError(unwritable(path, reason, "choose another place")) from error


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file with a new file's usual permissions; the library would restrict it to its owner.

    Raises OSError or SafetensorError.
    """
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    path.chmod(mode)


def check_new(path: Path) -> None:
    """Raise CheckpointError if `path` exists; call this before the work that makes the file."""
    if exists(path, CheckpointError):
        raise CheckpointError(f"{path}: exists already and is not overwritten; remove it or name another")
