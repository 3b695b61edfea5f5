"""A disk that reads slowly: a real file system on a block device whose reads the kernel throttles, which needs root."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from tests.faults.ended import trained
from tests.training.test_run import metrics

CONTROL = Path("/sys/fs/cgroup/blkio")  # cgroup v1
READS_PER_S = 1
BOUND_S = 180

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux" or not os.access(CONTROL, os.W_OK), reason="throttling needs root"),
]


def run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def on_disk(tiny_folder: Path, tmp_path: Path) -> Iterator[Path]:
    """The tiny system's data on a disk of its own, nothing of it in the page cache."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    try:
        run("mkfs.ext4", "-q", image)
        run("mount", "-o", "loop", image, folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of our own here: {error}")
    shutil.copytree(tiny_folder, folder / "data")
    run("umount", folder)
    run("mount", "-o", "loop", image, folder)
    yield folder / "data"
    run("umount", "--lazy", folder)


@pytest.fixture
def throttled(on_disk: Path) -> Iterator[Path]:
    """A control group whose processes read from that disk once a second."""
    group = CONTROL / f"bertbench_test_{os.getpid()}"
    group.mkdir()
    device = on_disk.stat().st_dev
    limit = group / "blkio.throttle.read_iops_device"
    limit.write_text(f"{os.major(device)}:{os.minor(device)} {READS_PER_S}")
    yield group
    group.rmdir()


def enter(group: Path, world: World) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
    world.barrier()


def test_a_slow_disk_is_told_of_with_rank_and_step_and_the_run_goes_on(
    tiny: Callable[..., System], on_disk: Path, throttled: Path, tmp_path: Path
) -> None:
    system = tiny("schedule.max_steps=4", f"data.path={on_disk}")
    ended = trained(2, BOUND_S, tmp_path, system, partial(enter, throttled))
    assert ended.codes == [0, 0], ended.said
    warnings = [line for line in ended.said.splitlines() if "waited" in line]
    assert {line[: len("warning: rank 0: step 1 waited ")] for line in warnings} <= {
        f"warning: rank {rank}: step 1 waited " for rank in (0, 1)
    }
    assert 1 <= len(warnings) <= 2  # one a minute of each rank
    assert metrics(tmp_path / "result_0.txt")[0]["load_wait_ms"] > 500  # the mean of both ranks
