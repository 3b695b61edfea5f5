"""Ranks that the kernel kills for lack of memory, in a control group of their own, which needs root."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ranks import LIMIT_S
from tests.whole_runs import BERTBENCH, words

CONTROL = Path("/sys/fs/cgroup/memory")  # cgroup v1
LIMIT_MB = 1000
# 100 million weights: with gradients and moments 1.6 GB a rank, while the launcher holds 0.3 GB
LARGE = ("model.hidden_size=1024", "model.feed_forward_size=4096", "model.layers=8")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux" or not os.access(CONTROL, os.W_OK), reason="limiting memory needs root"),
]


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group that has less memory than the run needs."""
    group = CONTROL / f"bertbench_test_{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(f"{LIMIT_MB}M")
    yield group
    group.rmdir()


def test_a_run_that_the_kernel_kills_for_lack_of_memory_is_given_up_and_says_so(
    tiny_file: str, tmp_path: Path, limited: Path
) -> None:
    command = [*BERTBENCH, "train", tiny_file, *words((*LARGE, "launch.max_restarts=9"))]
    entering = ["bash", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(limited)]
    done = subprocess.run(
        [*entering, *command, "--result", str(tmp_path / "result_0.txt")],
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("for lack of memory; give the job more, or raise data.gradient_accumulation_steps") == 3
    assert "3 times without a step after 0: not started again" in done.stderr
