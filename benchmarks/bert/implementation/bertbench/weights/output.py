"""Write a file or a folder whole or not at all: under a temporary name, renamed when it is complete."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from bertbench.common.errors import CheckpointError, system_reason


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to, beside `path`; it takes its place if the body ends well.

    Raises CheckpointError if `path` exists or can't be written.
    """
    check_new(path)
    unfinished = _beside(path)
    with _explained(path):
        try:
            yield unfinished
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill, beside `path`; it takes its place if the body ends well.

    Raises CheckpointError if `path` exists or can't be written.
    """
    check_new(path)
    unfinished = _beside(path)
    with _explained(path):
        unfinished.mkdir()
        try:
            yield unfinished
            unfinished.replace(path)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def save_tensors(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file with the permissions that any new file gets: the library would keep it to its owner.

    Raises OSError or SafetensorError.
    """
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    path.chmod(mode)


def check_new(path: Path) -> None:
    """Raises CheckpointError if `path` exists: better said before the work than after it."""
    if path.exists():
        raise CheckpointError(f"{path}: exists already, and nothing is overwritten; remove it or name another")


def _beside(path: Path) -> Path:
    """A hidden name that no other process, and no killed one, has taken."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = system_reason(error) if isinstance(error, OSError) else error
        raise CheckpointError(f"{path}: cannot be written ({why}); choose another place") from error
