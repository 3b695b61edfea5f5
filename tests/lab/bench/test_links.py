"""`lab links`: whole runs between two virtual hosts."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertbench.cli.main import main
from bertbench.distributed.world import World
from lab.bench import delay_line
from lab.bench.links import LinkRow, links_table
from lab.bench.network import DEVICE, limit_bandwidth, network_obstacle, on_two_hosts
from tests.conftest import Answer, Captured, Printed

_REASON = network_obstacle() or delay_line.missing_device()
needs_root = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")


@pytest.mark.slow
@needs_root
def test_a_link_has_the_latency_and_the_bandwidth_asked_for_and_leaves_nothing_behind() -> None:
    message_s, sum_s = on_two_hosts(seconds_over_the_link, latency_ms=30.0)
    assert 0.03 <= message_s < 3
    assert 0.36 < sum_s < 4  # 2 MB each way at 40 Mbit/s last 0.4 s; up to 0.07 MB pass at once
    assert DEVICE not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout


def seconds_over_the_link(world: World) -> list[float]:
    def seconds(send: Callable[[], object]) -> float:
        world.barrier()
        began = time.perf_counter()
        send()
        world.barrier()
        return time.perf_counter() - began

    message_s = seconds(lambda: world.from_all(7))
    limit_bandwidth(40.0)
    return [message_s, seconds(lambda: world.sum(torch.ones(500_000)))]


@pytest.mark.slow
@needs_root
def test_every_way_trains_over_the_link(tiny_file: str, answer: Answer) -> None:
    rows = answer("lab", "links", "--system", tiny_file, "--mbit", 80, "--steps", 3)
    assert [row["way"] for row in rows] == ["every_step", "int8", "topk", "delayed", "local_sgd", "diloco"]
    assert all((row["samples"], row["mbit"], row["reached"]) == (36, 80, False) for row in rows)
    assert all(row["samples_per_s"] > 1 for row in rows)


def test_ways_are_compared_with_every_step_if_both_reached_the_target_or_both_had_none() -> None:
    def shown(base: LinkRow, way: LinkRow) -> list[str]:
        return links_table([base, way])[2].split()[-4:]

    base = LinkRow("every_step", 10, 0, 20, 1000, True, 50)
    assert shown(base, replace(base, way="diloco", seconds=20)) == ["20", "1,000", "20.0", "2.50"]
    assert shown(base, replace(base, way="diloco", reached=False)) == ["20", "-", "-", "-"]
    base = replace(base, reached=False)
    assert shown(base, replace(base, way="diloco", samples_per_s=30, seconds=40)) == ["30", "-", "-", "1.25"]


@pytest.mark.parametrize("bench", ["links", "overlap"])
def test_without_root_a_bench_says_so_and_measures_nothing(
    bench: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["lab", bench, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == "[]"
    assert printed.err.startswith("skipped: found no ip, tc, unshare")
    assert len(printed.err.splitlines()) == 1


def test_wrong_numbers_are_refused(printed: Printed) -> None:
    for option, value, expected in (
        ("--mbit", 0, "--mbit 0: expected numbers above 0"),
        ("--latency-ms", "fast", "--latency-ms fast: expected numbers"),
    ):
        assert expected in printed("lab", "links", option, value, code=2)


def test_a_setting_that_no_run_honours_is_refused(tiny_file: str, printed: Printed) -> None:
    said = printed("lab", "links", "--system", tiny_file, "--set", "squad.epochs=3", code=2)
    assert "squad.epochs" in said
    assert "`bertbench finetune squad` reads that section" in said
