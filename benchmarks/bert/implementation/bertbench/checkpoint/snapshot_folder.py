"""Publish and verify snapshots: result_<n>/snapshots/step_<k>/, torch's distributed checkpoint and meta.json.

A folder is renamed to step_<k> when all of it is on disk, so this name means a complete snapshot. meta.json has the
checksum of every other file, which reveals later damage.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from bertbench.common.errors import CheckpointError, system_reason
from bertbench.common.section import Section
from bertbench.common.system_faults import is_systems, unreadable
from bertbench.data.store.manifest import file_sha256

META_NAME = "meta.json"
_STEP = "step_"
_PARTIAL = ".partial"


class Meta(Section):
    """The content of meta.json: all that a resumed run needs except tensors."""

    step: int
    """Optimizer steps taken; data, learning rate and evaluations follow from it and the seed."""
    samples: int
    seed: int
    saved_at: str
    """Time in UTC, ISO 8601."""
    nodes: int
    ranks: int
    evaluations: tuple[tuple[int, float], ...]
    """Training samples and accuracy of every evaluation so far."""
    log_bytes: int
    """Size of the MLPerf log at this moment, in bytes; the log has its run_start by then."""
    bertbench: str
    torch: str
    config: dict[str, Any]
    """The resolved system file."""
    sha256: dict[str, str] = Field(default_factory=dict)
    """The checksum of every other file in the folder, by the file's name."""


def step_folder(snapshots: Path, step: int) -> Path:
    """Return the folder of a step's snapshot."""
    return snapshots / f"{_STEP}{step}"


def partial_folder(snapshots: Path, step: int) -> Path:
    """Return the folder of a snapshot that is being written."""
    return snapshots / f"{_STEP}{step}{_PARTIAL}"


def publish(snapshots: Path, meta: Meta, keep: int) -> None:
    """Add the checksums to a written snapshot and give it its final name, on disk; remove all but the last `keep`."""
    partial = partial_folder(snapshots, meta.step)
    with_checksums = meta.model_copy(update={"sha256": _checksums(partial)})
    (partial / META_NAME).write_text(with_checksums.model_dump_json(indent=2) + "\n", encoding="utf-8")
    to_disk(partial / META_NAME)
    to_disk(partial)
    partial.rename(step_folder(snapshots, meta.step))
    to_disk(snapshots)
    for step in sorted(_steps(snapshots))[:-keep]:
        shutil.rmtree(step_folder(snapshots, step))


def verified(folder: Path) -> Meta:
    """Return a snapshot's meta.json after checking every file against its checksum.

    Raises CheckpointError if it is damaged, or not a snapshot.
    """
    remedy = "resume from an older one, or start a new run with --resume never"
    try:
        meta = Meta.model_validate_json((folder / META_NAME).read_text(encoding="utf-8"))
        checksums = _checksums(folder)
    except OSError as error:
        if is_systems(error):
            raise CheckpointError(unreadable(Path(error.filename or folder), error, remedy)) from error
        raise CheckpointError(f"{folder}: is not a complete snapshot ({system_reason(error)}); {remedy}") from error
    except (ValidationError, UnicodeError) as error:
        raise CheckpointError(f"{folder / META_NAME}: is damaged; {remedy}") from error
    wrong = sorted(
        name for name in meta.sha256.keys() | checksums.keys() if meta.sha256.get(name) != checksums.get(name)
    )
    if wrong:
        raise CheckpointError(f"{folder}: files changed since they were written: {', '.join(wrong)}; {remedy}")
    return meta


def newest(snapshots: Path) -> tuple[Path, Meta] | None:
    """Return the last complete snapshot, and warn of later damaged ones; None if there is none.

    Raises CheckpointError if the system can't read a later snapshot. Resuming from an older one would delete it, but it
    may be undamaged.
    """
    for step in sorted(_steps(snapshots), reverse=True):
        folder = step_folder(snapshots, step)
        try:
            return folder, verified(folder)
        except CheckpointError as error:
            if is_systems(error.__cause__):
                raise CheckpointError(f"{error}; or name an older snapshot") from error
            print(f"warning: {error}", file=sys.stderr)
    return None


def drop_unfinished(snapshots: Path, after: int) -> None:
    """Remove partial snapshots, and snapshots of later steps, which the resumed run saves again."""
    for partial in snapshots.glob(f"{_STEP}*{_PARTIAL}"):
        shutil.rmtree(partial)
    for step in _steps(snapshots):
        if step > after:
            shutil.rmtree(step_folder(snapshots, step))


def to_disk(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _steps(snapshots: Path) -> list[int]:
    names = [path.name.removeprefix(_STEP) for path in snapshots.glob(f"{_STEP}*")]
    return [int(name) for name in names if name.isdecimal()]


def _checksums(folder: Path) -> dict[str, str]:
    return {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != META_NAME}
