"""A disk that becomes full while a run writes to it: a real file system of 4 MB, which needs root."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertbench.checkpoint.resumption import find_resumption, restore_files
from bertbench.checkpoint.snapshot_folder import newest
from bertbench.common.atomic import LineFile
from bertbench.common.errors import RunError
from bertbench.runs.files import ResultFiles
from compliance.read.log import read_events
from tests.ranks import LIMIT_S
from tests.whole_runs import launched, metrics, wait_for, words


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small file system needs root: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, name: str, leave: int) -> None:
    """Leave so many bytes free."""
    free = os.statvfs(disk)
    with (disk / name).open("wb") as file:
        file.write(bytes(max(0, free.f_bavail * free.f_bsize - leave)))


def test_a_line_that_does_not_fit_is_one_error() -> None:
    with pytest.raises(RunError, match="/dev/full: cannot be written \\(No space left on device\\)"):
        LineFile(Path("/dev/full")).append("whole\n")


@pytest.mark.faults
def test_a_line_that_fits_only_partly_is_not_written_at_all(disk: Path) -> None:
    file = LineFile(disk / "lines")
    file.append("first\n")
    fill(disk, "filler", leave=0)
    with pytest.raises(RunError, match="No space left on device"):
        file.append("x" * 5000 + "\n")  # the rest of the first page is free
    assert (disk / "lines").read_text() == "first\n"


@pytest.mark.faults
def test_a_full_disk_costs_snapshots_first_and_then_ends_the_run_with_one_message(tiny_file: str, disk: Path) -> None:
    endless = words(["schedule.max_steps=100000", "evaluation.interval_samples=600000", "checkpoint.every_steps=10"])
    log = disk / "tiny" / "bert" / "result_0.txt"
    files = ResultFiles(log)
    with launched("train", tiny_file, *endless, LOGDIR=str(disk)) as launcher:
        wait_for((files.snapshots / "step_20").exists)
        fill(disk, "filler", leave=24_000)  # lines fit, a snapshot doesn't
        _, text = launcher.communicate(timeout=LIMIT_S)
    assert launcher.returncode == 1
    assert "Traceback" not in text, text
    assert "can't be written (rank " in text
    assert "training continues, but a restart would resume from the previous snapshot" in text
    (message,) = [line for line in text.splitlines() if line.startswith("bertbench: ")]
    assert message.startswith("bertbench: rank 0: ")
    assert "cannot be written (No space left on device); make room there" in message
    (disk / "filler").unlink()
    found = find_resumption("auto", None, log.parent)
    kept = newest(files.snapshots)
    assert found.meta.step == kept[1].step
    restore_files(files, found.meta)  # log and metrics are whole up to there
    assert [row["step"] for row in metrics(log)] == list(range(1, found.meta.step + 1))
    assert read_events(log)
