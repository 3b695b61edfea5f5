"""A launcher that is killed by SIGKILL leaves no rank behind, and its run goes on as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.kill import started
from tests.faults.test_restarts import assert_as_if_undisturbed, lasting, resumptions, wait_for_steps
from tests.training.test_run import BERTBENCH, wait_for

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="prctl and /proc are Linux's"),
]
GONE_S = 10  # of a rank that is still at its first imports; then it asks


def alive(process: int) -> bool:
    """Whether a process is there; one that nobody has waited for yet is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("steps", [0, 100], ids=["in their imports", "in their steps, one stopped"])
def test_ranks_die_with_a_launcher_that_is_killed(tiny_file: str, tmp_path: Path, steps: int) -> None:
    run = [tiny_file, *lasting(600)]
    log = tmp_path / "run" / "result_0.txt"
    log.parent.mkdir()
    command = [*BERTBENCH, "train", *run, "--result", str(log)]
    launcher = subprocess.Popen(command)
    ranks = started(launcher, 2, {})
    try:
        if steps:
            wait_for_steps(log, steps)
            os.kill(ranks[1], signal.SIGSTOP)  # could not end by itself
        launcher.kill()
        launcher.wait()
        began = time.monotonic()
        wait_for(lambda: not any(map(alive, ranks.values())), GONE_S)
        assert time.monotonic() - began < GONE_S
    finally:
        for process in filter(alive, ranks.values()):
            os.kill(process, signal.SIGKILL)
    if steps:
        assert subprocess.run([*command, "--resume", "auto"], check=False).returncode == 0
        assert resumptions(log) == [(1, "the run left no word")]
        assert_as_if_undisturbed(log, *run)
