"""Runs of a package against each other: copies under any disguise, and a run that is too fast for its siblings."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.__main__ import main
from compliance.package import judge_package
from tests.compliance.mutations import both
from tests.compliance.packages import START, line, run_log, write_package

Text = Callable[[str], str]


def found(logs: Path) -> set[tuple[str, str]]:
    judgement = judge_package(logs.parents[2], "5.0.0")
    return {(finding.rule, finding.severity) for finding in judgement.all_findings()}


def accuracies(change: Callable[[float], float]) -> Text:
    pattern = re.compile(r'("eval_accuracy", "value": )([\d.]+)')
    return lambda text: pattern.sub(lambda match: f"{match[1]}{change(float(match[2]))!r}", text)


def times(change: Callable[[int], int]) -> Text:
    """Change times after run_start, as milliseconds from there."""
    began = START + 1_000

    def changed(match: "re.Match[str]") -> str:
        at = int(match[2]) - began
        return f"{match[1]}{began + (change(at) if at > 0 else at)}"

    return lambda text: re.sub(r'("time_ms": )(\d+)', changed, text)


def own_accuracies(text: str) -> str:
    chance = random.Random(3)
    return accuracies(lambda one: one + chance.random() * (1e-3 if one < 0.7195 else 3e-4))(text)


def own_times(text: str) -> str:
    chance = random.Random(3)
    return times(lambda at: 103_000 if at == 100_000 else int(1.03 * at) + chance.randrange(60))(text)


def scaled(share: float) -> Callable[[int], int]:
    return lambda at: int(share * at)


tiny = random.Random(5)


@pytest.mark.parametrize(
    "disguise",
    [
        str,
        own_accuracies,
        own_times,
        both(own_accuracies, times(lambda at: at + 700)),
        both(own_times, accuracies(lambda one: one + 0.0005)),
        both(own_times, accuracies(lambda one: one + tiny.random() * 1e-5)),
        both(own_accuracies, lambda text: text.replace(str(START)[:5], "18000")),
    ],
    ids=["none", "accuracies", "times", "late", "offset", "noise", "another year"],
)
def test_a_copied_run_is_found_in_any_disguise(tmp_path: Path, disguise: Text) -> None:
    logs = write_package(tmp_path)
    copy = disguise((logs / "result_0.txt").read_text())
    (logs / "result_3.txt").write_text(copy.replace('"seed", "value": 1', '"seed", "value": 4'))
    assert ("copied-run", "error") in found(logs)


def test_a_run_with_half_of_the_evaluations_of_another_is_a_copy(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=20)
    lines = (logs / "result_0.txt").read_text().replace('"seed", "value": 1', '"seed", "value": 4').splitlines(True)
    evaluations = [line for line in lines if "eval_accuracy" in line]
    kept = [line for line in lines if line not in evaluations[1:9]]
    (logs / "result_3.txt").write_text(own_times("".join(kept)))
    assert ("copied-run", "error") in found(logs)


def add_system(root: Path) -> None:
    described = json.loads((root / "systems" / "toy.json").read_text()) | {"system_name": "toy2"}
    (root / "systems" / "toy2.json").write_text(json.dumps(described))


def test_runs_are_compared_across_systems(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    add_system(tmp_path)
    shutil.copytree(logs.parent, tmp_path / "results" / "toy2")
    assert ("copied-run", "error") in found(logs)


def logged_losses(seed: int, name: str = "train_loss", offset: float = 0.0) -> Text:
    chance = random.Random(seed)
    return lambda text: "".join(
        found + (f"{line(name, chance.uniform(1, 7) + offset, 50_000)}\n" if "eval_stop" in found else "")
        for found in text.splitlines(True)
    )


def test_runs_with_the_losses_or_blocks_of_another_are_copies(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    for run in range(10):
        log = logs / f"result_{run}.txt"
        log.write_text(logged_losses(run)(log.read_text()))
    assert found(logs) == set()
    log.write_text(logged_losses(4)(run_log(seconds=109, seed=10)))
    assert found(logs) == {("copied-run", "error")}
    blocks = iter(one for one in (logs / "result_4.txt").read_text().splitlines(True) if "block_" in one)
    lines = run_log(seconds=109, seed=10).splitlines(True)
    log.write_text("".join(next(blocks) if "block_" in one else one for one in lines))
    assert ("copied-run", "error") in found(logs)


@pytest.mark.parametrize(("name", "offset"), [("train_loss", 0.01), ("throughput", 0.0)])
def test_runs_with_later_losses_or_the_throughputs_of_another_are_copies(
    tmp_path: Path, name: str, offset: float
) -> None:
    logs = write_package(tmp_path)
    for run in (0, 3):
        log = logs / f"result_{run}.txt"
        log.write_text(logged_losses(4, name, run * offset)(log.read_text()))
    assert ("copied-run", "error") in found(logs)


def test_a_linked_folder_is_no_second_system(tmp_path: Path) -> None:
    logs = write_package(tmp_path, "open")
    add_system(tmp_path)
    (tmp_path / "results" / "toy2").symlink_to("toy")
    assert ("layout", "error") in found(logs)


def test_time_cut_evenly_from_one_run_shows_against_its_siblings(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    log = logs / "result_5.txt"
    log.write_text(times(scaled(0.7))(log.read_text()))
    assert found(logs) == {("speed", "warning")}


@pytest.mark.parametrize("fast", [(2, 5, 7), (0, 1, 2, 3, 4, 5), (9, 8, 7, 6, 5, 4, 3, 2, 1)])
def test_time_cut_evenly_from_several_runs_shows_against_the_others(tmp_path: Path, fast: tuple[int, ...]) -> None:
    logs = write_package(tmp_path)
    for place, run in enumerate(fast):
        log = logs / f"result_{run}.txt"
        share = 0.8 if len(fast) < 9 else 0.68 + 0.035 * place  # a cut a little less in each
        log.write_text(times(scaled(share))(log.read_text()))
    assert found(logs) == {("speed", "warning")}


def test_three_runs_of_the_same_milliseconds_are_asked_about(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    for run in range(3):
        (logs / f"result_{run}.txt").write_text(run_log(seconds=100, seed=run + 1))
    assert found(logs) == {("speed", "warning")}


def test_one_slow_run_does_not_make_the_others_fast(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    log = logs / "result_5.txt"
    log.write_text(times(scaled(1.3))(log.read_text()))
    assert found(logs) == set()


@pytest.mark.parametrize(
    "disguise",
    [
        both(own_accuracies, times(lambda at: round(1.013 * at))),
        both(own_accuracies, times(lambda at: at + tiny.randrange(20))),
        both(own_times, accuracies(lambda one: one + tiny.gauss(0, 1e-4))),
    ],
    ids=["stretched", "shaken", "a curve with noise"],
)
def test_runs_that_nearly_follow_another_are_asked_about(tmp_path: Path, disguise: Text) -> None:
    logs = write_package(tmp_path)
    copy = disguise((logs / "result_0.txt").read_text())
    (logs / "result_3.txt").write_text(copy.replace('"seed", "value": 1', '"seed", "value": 4'))
    assert found(logs) == {("copied-run", "warning")}


def test_runs_are_compared_in_a_folder_of_logs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = write_package(tmp_path)
    assert main([str(logs)]) == 0
    assert "warning" not in capsys.readouterr().out
    (logs / "result_5.txt").write_text(run_log(seconds=60, seed=4).replace("6700", "6800"))
    assert main([str(logs)]) == 0
    text = capsys.readouterr().out
    for rule in ("seed", "settings", "speed", "copied-run"):
        assert f"{logs}: warning {rule}: " in text


def test_settings_are_compared_by_value(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    log = logs / "result_5.txt"
    log.write_text(log.read_text().replace('"value": 6700', '"value": 6700.0'))
    assert found(logs) == set()


def test_thousands_of_decoys_do_not_hide_in_silence(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    lines = (logs / "result_0.txt").read_text().splitlines(True)
    decoys = [line.replace("e-", "e-1") for line in lines if "eval_accuracy" in line] * 100
    (logs / "result_3.txt").write_text("".join([*lines[:8], *decoys, *lines[8:]]))
    assert {"copied-run"} <= {rule for rule, _ in found(logs)}


def counted(change: Callable[[int], int]) -> Text:
    return lambda text: re.sub(r'("epoch_num": )(\d+)', lambda match: f"{match[1]}{change(int(match[2]))}", text)


def test_counts_of_packed_batches_are_compared_and_those_of_a_grid_are_not(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    for run in range(10):
        log = logs / f"result_{run}.txt"
        log.write_text(counted(lambda at: at // 150_000 * 150_000)(log.read_text()))
        if run in (0, 4):
            log.write_text(counted(lambda at: at + at * at % 811)(log.read_text()))
    copies = [one for one in judge_package(tmp_path, "5.0.0").all_findings() if one.rule == "copied-run"]
    (copy,) = copies
    assert (copy.severity, "result_4.txt: the samples of" in copy.found) == ("warning", True)
