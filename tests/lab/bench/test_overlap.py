"""Two virtual hosts, and what `lab overlap` says of them."""

import json
import subprocess
import time
from pathlib import Path

import pytest
import torch

from bertbench.cli import main
from bertbench.distributed.world import World
from lab.bench.clipped_step import MODES
from lab.bench.network import limit_bandwidth, obstacle, on_two_hosts

needs_root = pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")
MEGABYTES = 2


def _seconds_at(world: World, mbit: float) -> float:
    limit_bandwidth(mbit)
    world.barrier()
    began = time.perf_counter()
    world.sum(torch.ones(MEGABYTES * 250_000))
    return time.perf_counter() - began


@needs_root
def test_the_cable_between_two_hosts_is_as_slow_as_it_is_told_and_leaves_nothing_behind() -> None:
    # 2 MB each way at 40 Mbit/s last 0.4 s; up to 0.07 MB pass at once
    assert 0.36 < on_two_hosts(_seconds_at, 40.0) < 4
    assert "bench0" not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout


def test_a_machine_that_cannot_be_two_hosts_is_told_and_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["lab", "overlap", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == []
    assert "skipped: found no ip, tc, unshare" in printed.err


@needs_root
@pytest.mark.slow
def test_bucket_hides_communication_that_before_exposes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "overlap", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    bandwidths = sorted({row["bandwidth_mbit"] for row in rows})
    assert [row["mode"] for row in rows] == list(MODES) * 3
    assert len(bandwidths) == 3
    exposed = {row["mode"]: row["exposed_ms"] for row in rows if row["bandwidth_mbit"] == bandwidths[1]}
    assert exposed["bucket"] < 0.75 * exposed["before"]  # half on a quiet machine: docs/clipping.md
