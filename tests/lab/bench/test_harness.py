"""The common parts of benches: interleaving, pairs and their intervals, records."""

import argparse
import json
from functools import partial
from pathlib import Path

import pytest

from bertbench.common.intervals import of_median
from bertbench.common.progress import Progress
from lab.bench.harness import BenchResult, alternate, command, paired_ratio
from tests.conftest import Captured


def test_configurations_take_turns_in_alternating_order_and_the_warm_up_is_dropped() -> None:
    calls = []

    def take(name: str, number: int) -> str:
        calls.append(f"{name}{number}")
        return calls[-1]

    configurations = {name: partial(take, name) for name in "ab"}
    assert alternate(configurations, 2, warm_up=1) == {"a": ["a1", "a2"], "b": ["b1", "b2"]}
    assert calls == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_a_ratio_is_the_median_of_pairs_and_its_interval_that_of_the_sign_test() -> None:
    # of 9 pairs at most one lies below the median with a chance of 10 / 512, at most two with 46 / 512
    found = paired_ratio([9, 8, 7, 6, 5, 4, 3, 2, 10], [1] * 9)
    assert found == (6, 3, 9)
    assert str(found) == "6.00 x (3.00 to 9.00)"


def test_five_pairs_give_no_interval() -> None:
    found = paired_ratio([2, 4, 6, 8, 10], [1, 2, 3, 4, 5])
    assert found == (2, None, None)
    assert str(found) == "2.00 x"


def test_intervals_of_several_medians_hold_jointly() -> None:
    # each of four: at most none of 9 lies below the median with a chance of 1 / 512, at most one with 10 / 512
    assert of_median([*range(9)]) == (4, 1, 7)
    assert of_median([*range(9)], tests=4) == (4, 0, 8)


def measured(arguments: argparse.Namespace, _: Progress) -> BenchResult | None:
    return (
        None
        if arguments.seed == 9
        else BenchResult([arguments.steps], ["a table", "of two lines"], {"kept": True}, code=1)
    )


ADD, RUN = command(measured, ("--steps", 3, "steps"), seeds="steps")


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(command="lab x")
    ADD(parser)
    return RUN(parser.parse_args(words))


def test_a_record_keeps_command_machine_and_what_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    file = tmp_path / "record.json"
    monkeypatch.setattr("sys.argv", ["bertbench", "lab", "x", "--json", "--record", str(file), "--steps", "7"])
    assert run("--json", "--record", str(file), "--steps", "7") == 1
    assert json.loads(capsys.readouterr().out) == [7]
    record = json.loads(file.read_text())
    assert record["command"] == "bertbench lab x --steps 7"
    assert (record["results"], record["kept"]) == ([7], True)
    assert record["commit"] and record["processor"] and record["measured"]


def test_a_bench_that_cannot_run_here_prints_an_empty_list_and_writes_no_record(
    tmp_path: Path, capsys: Captured
) -> None:
    assert run("--json", "--seed", "9", "--record", str(tmp_path / "record.json")) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert list(tmp_path.iterdir()) == []
