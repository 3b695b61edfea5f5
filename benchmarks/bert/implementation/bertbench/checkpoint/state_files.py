"""Write and read a run's state by torch's distributed checkpoint, which takes a process 0.4 s to import."""

import warnings
from concurrent.futures import Future
from pathlib import Path

from torch import Tensor
from torch.distributed import ProcessGroup, checkpoint
from torch.distributed.checkpoint.api import CheckpointException

from bertbench.checkpoint.reading import SnapshotReader
from bertbench.common.errors import CheckpointError
from bertbench.common.system_faults import unreadable


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


def read(state: dict[str, Tensor], folder: Path, group: ProcessGroup | None) -> None:
    """Fill the state; collective in `group`, and alone without one.

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
            f"{folder}: doesn't fit this run ({_reason(error)}); undo the changes of model, optimizer and precision"
        ) from error


def _reason(error: CheckpointException) -> str:
    """Return the reason in one line: that of the first rank that failed."""
    rank, cause = _first_failure(error)
    return f"rank {rank}: {str(cause).splitlines()[0] if str(cause) else type(cause).__name__}"


def _first_failure(error: CheckpointException) -> tuple[int, BaseException]:
    rank, (cause, _) = min(error.failures.items())
    return rank, cause
