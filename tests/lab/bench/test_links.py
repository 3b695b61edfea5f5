"""`lab links`: whole runs between two virtual hosts, and where the ways cross."""

import json
import time
from pathlib import Path

import pytest

from bertbench.cli import main
from bertbench.distributed.world import World
from lab.bench import delay_line
from lab.bench.links import LinkRow, table_of, verdicts
from lab.bench.network import obstacle, on_two_hosts

_REASON = obstacle() or delay_line.obstacle()
needs_root = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")


def row(way: str, mbit: float, seconds: float, samples: int = 1000, reached: bool = True) -> LinkRow:
    return LinkRow(way, mbit, 0.0, samples / seconds, samples, reached, seconds)


@needs_root
def test_a_message_takes_as_long_as_the_latency_says() -> None:
    seconds = on_two_hosts(seconds_of_a_sum, latency_ms=30.0)
    assert 0.03 <= seconds < 3


def seconds_of_a_sum(world: World) -> float:
    world.barrier()
    began = time.perf_counter()
    world.from_all(7)
    world.barrier()
    return time.perf_counter() - began


@needs_root
def test_every_way_trains_over_the_link_(tiny_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--system", tiny_file, "--mbit", "80", "--steps", "3", "--set", "sync.every_steps=2"]
    words += ["--record", str(tmp_path / "links.json")]
    assert main(["lab", "links", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["way"] for row in rows] == ["every_step", "int8", "topk", "delayed", "local_sgd", "diloco"]
    record = json.loads((tmp_path / "links.json").read_text())
    assert record["results"] == rows
    assert len(record["printed"]) == 1 + len(rows)  # one bandwidth says nothing of others
    assert all((row["samples"], row["mbit"], row["reached"]) == (36, 80, False) for row in rows)
    assert all(row["samples_per_s"] > 1 for row in rows)


def test_ways_cross_where_seconds_that_are_linear_in_one_over_the_bandwidth_meet() -> None:
    # every_step: 10 s + 1000 / mbit; diloco: 15 s + 100 / mbit; equal at 900 / mbit = 5, mbit = 180
    rows = [
        row(way, mbit, fixed + sent / mbit)
        for way, fixed, sent in (("every_step", 10, 1000), ("diloco", 15, 100), ("int8", 9, 250))
        for mbit in (10, 100, 1000)
    ]
    assert verdicts(rows) == [
        "diloco takes as long as every_step at 180 Mbit/s, latency 0 ms",
        "faster than every_step at all bandwidths measured, latency 0 ms: int8",
    ]
    assert table_of(rows)[4].split()[-2:] == ["25.0", "4.40"]  # 15 + 100 / 10 in place of 10 + 1000 / 10


def test_a_way_that_missed_the_target_is_compared_with_none_that_reached_it() -> None:
    rows = [row("every_step", 10, 50), row("diloco", 10, 20, reached=False)]
    assert table_of(rows)[2].split()[-3:] == ["-", "-", "-"]
    assert verdicts(rows) == []


def test_without_root_it_says_so_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["lab", "links", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == "[]"
    assert printed.err.startswith("skipped: ")
    assert len(printed.err.splitlines()) == 1


def test_wrong_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in (
        (["--mbit", "0"], "0: expected a number above 0"), (["--latency-ms", "fast"], "expected numbers"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main(["lab", "links", *words])
        assert expected in capsys.readouterr().err
    assert main(["lab", "links", "--ways", "gossip"]) == 2
    assert "--ways: unknown 'gossip'; choose of every_step" in capsys.readouterr().err
