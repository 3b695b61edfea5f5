"""Write weights to new paths, with clear errors."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from bertbench.common.atomic import new_file
from bertbench.common.errors import CheckpointError
from bertbench.common.system_faults import exists, systems_error, unwritable


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
    """Raise CheckpointError if `path` exists; call it before the work."""
    if exists(path, CheckpointError):
        raise CheckpointError(f"{path}: exists already and is not overwritten; remove it or name another")
