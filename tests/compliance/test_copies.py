"""Runs of a package against each other: copies under any disguise, and a run that is too fast for its siblings."""

import json
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from compliance.__main__ import main
from compliance.judge import judge
from compliance.package import judge_package
from tests.compliance.mutations import both
from tests.compliance.packages import START, line, run_log, write_package
from tests.conftest import Captured

Text = Callable[[str], str]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The logs of a package that passes."""
    return write_package(tmp_path)


def rewrite(logs: Path, run: int, change: Text) -> None:
    log = logs / f"result_{run}.txt"
    log.write_text(change(log.read_text()))


def copy(logs: Path, change: Text) -> None:
    """The fourth run is made of the first, with a seed of its own."""
    content = (logs / "result_0.txt").read_text().replace('"seed", "value": 1', '"seed", "value": 4')
    (logs / "result_3.txt").write_text(change(content))


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
    ("severity", "disguise"),
    [
        ("error", str),
        ("error", own_accuracies),
        ("error", own_times),
        ("error", both(own_accuracies, times(lambda at: at + 700))),
        ("error", both(own_times, accuracies(lambda one: one + tiny.random() * 1e-5))),
        ("error", both(own_times, accuracies(lambda one: 1.004 * one - 0.0027))),
        ("error", both(own_accuracies, lambda text: text.replace(str(START)[:5], "18000"))),
        ("error", both(own_accuracies, times(lambda at: round(1.013 * at)))),
        ("warning", both(own_accuracies, times(lambda at: at + tiny.randrange(20)))),
        ("warning", both(own_times, accuracies(lambda one: one + tiny.gauss(0, 1e-4)))),
    ],
    ids=[
        "none", "accuracies", "times", "late", "noise", "stretched accuracies", "another year", "stretched",
        "shaken", "a curve with noise",
    ],
)  # fmt: skip
def test_a_copied_run_is_found_in_any_disguise_and_asked_about_if_it_nearly_follows(
    logs: Path, severity: str, disguise: Text
) -> None:
    copy(logs, disguise)
    assert found(logs) == {("copied-run", severity)}


def test_times_beyond_any_clock_end_no_comparison(logs: Path) -> None:
    for run, time in enumerate(("-1.7e308", "1.7e308")):
        change = partial(re.sub, r'(time_ms": )\d+(, .*"run_start")', rf"\g<1>{time}\2")
        rewrite(logs, run, change)
    assert judge_package(logs.parents[2], "5.0.0").verdict == "fail"


@pytest.mark.parametrize("factor", [0.0, 1e-200, 1e100])
def test_accuracies_without_a_slope_end_no_comparison(logs: Path, factor: float) -> None:
    for run in range(2):
        rewrite(logs, run, accuracies(lambda one: factor * one))
    assert judge_package(logs.parents[2], "5.0.0").verdict == "fail"


def test_a_run_that_begins_with_another_s_accuracies_is_a_copy(logs: Path) -> None:
    values = re.findall(r'"eval_accuracy", "value": ([\d.]+)', (logs / "result_0.txt").read_text())[:4]
    begun = iter(map(float, values))
    rewrite(logs, 3, accuracies(lambda one: next(begun, one)))
    assert found(logs) == {("copied-run", "error")}


def test_a_run_of_several_others_is_a_copy(logs: Path) -> None:
    values = [re.findall(r'"eval_accuracy", "value": ([\d.]+)', (logs / f"result_{run}.txt").read_text())
              for run in (0, 1, 2)]  # fmt: skip
    mixed = iter(map(float, [*values[0][:6], *values[1][6:12], *values[2][12:]]))
    rewrite(logs, 3, both(own_times, accuracies(lambda _: next(mixed))))
    assert found(logs) == {("copied-run", "error")}


def test_a_run_with_half_of_the_evaluations_of_another_is_a_copy(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=20)
    evaluations = [line for line in (logs / "result_0.txt").read_text().splitlines(True) if "eval_accuracy" in line]
    copy(logs, lambda text: own_times("".join(one for one in text.splitlines(True) if one not in evaluations[1:9])))
    assert ("copied-run", "error") in found(logs)


def add_system(root: Path) -> None:
    described = json.loads((root / "systems" / "toy.json").read_text()) | {"system_name": "toy2"}
    (root / "systems" / "toy2.json").write_text(json.dumps(described))


def test_runs_are_compared_across_systems(tmp_path: Path, logs: Path) -> None:
    add_system(tmp_path)
    shutil.copytree(logs.parent, tmp_path / "results" / "toy2")
    assert ("copied-run", "error") in found(logs)


def logged_losses(seed: int, name: str = "train_loss", offset: float = 0.0) -> Text:
    chance = random.Random(seed)
    return lambda text: "".join(
        found + (f"{line(name, chance.uniform(1, 7) + offset, 50_000)}\n" if "eval_stop" in found else "")
        for found in text.splitlines(True)
    )


def test_runs_with_the_losses_of_another_are_copies(logs: Path) -> None:
    for run in range(10):
        rewrite(logs, run, logged_losses(run))
    assert found(logs) == set()
    own = run_log(seconds=109, seed=10)
    rewrite(logs, 9, lambda _: logged_losses(4)(own))
    assert found(logs) == {("copied-run", "error")}


@pytest.mark.parametrize(("name", "offset"), [("train_loss", 0.01), ("throughput", 0.0)])
def test_runs_with_later_losses_or_the_throughputs_of_another_are_copies(logs: Path, name: str, offset: float) -> None:
    for run in (0, 3):
        rewrite(logs, run, logged_losses(4, name, run * offset))
    assert ("copied-run", "error") in found(logs)


def test_a_linked_folder_is_no_second_system(tmp_path: Path) -> None:
    logs = write_package(tmp_path, "open")
    add_system(tmp_path)
    (tmp_path / "results" / "toy2").symlink_to("toy")
    assert ("layout", "error") in found(logs)


@pytest.mark.parametrize(
    ("shares", "rules"),
    [
        ({5: 0.7}, {("speed", "warning")}),
        (dict.fromkeys((2, 5, 7), 0.8), {("speed", "warning")}),
        (dict.fromkeys(range(6), 0.8), {("speed", "warning")}),
        ({9 - place: 0.68 + 0.035 * place for place in range(9)}, {("speed", "warning")}),  # a little less in each
        ({5: 1.3}, set()),
    ],
)
def test_time_cut_evenly_from_runs_shows_against_the_others_which_one_slow_run_does_not_make_fast(
    logs: Path, shares: dict[int, float], rules: set[tuple[str, str]]
) -> None:
    for run, share in shares.items():
        rewrite(logs, run, times(scaled(share)))
    assert found(logs) == rules


def test_a_run_that_learns_from_far_fewer_samples_than_the_others_is_asked_about(logs: Path) -> None:
    rewrite(logs, 5, lambda _: run_log(evaluations=12, seconds=74, seed=6))
    assert found(logs) == {("speed", "warning")}


def test_clocks_of_seconds_make_no_copies(logs: Path) -> None:
    for run in range(10):
        rewrite(logs, run, times(lambda at: at // 25 * 1000))
    assert found(logs) == set()
    assert not judge(logs / "result_0.txt", "5.0.0").findings
    rewrite(logs, 0, lambda text: text.replace(str(START), str(START + 1), 1))
    assert judge(logs / "result_0.txt", "5.0.0").findings


def test_a_run_that_begins_before_another_ends_is_asked_about_if_the_others_wait(logs: Path) -> None:
    for run in range(10):
        rewrite(logs, run, partial(re.sub, "170000", f"17000{run - (run == 5)}"))
    assert found(logs) == {("speed", "warning")}


def test_runs_that_end_with_the_same_accuracy_are_asked_about(logs: Path) -> None:
    for run in range(8):
        rewrite(logs, run, partial(re.sub, r"0\.72\d+", "0.7203"))
    assert found(logs) == {("speed", "warning")}


def test_runs_of_the_same_time_are_asked_about(logs: Path) -> None:
    for run in range(3):
        rewrite(logs, run, times(lambda at: min(at, 99_997)))
    assert found(logs) == {("speed", "warning")}


def test_one_of_three_runs_in_half_the_time_is_found(logs: Path, capsys: Captured) -> None:
    rewrite(logs, 1, times(scaled(0.5)))
    main([str(logs / f"result_{run}.txt") for run in range(3)])
    assert "warning speed" in capsys.readouterr().out


def test_runs_are_compared_in_a_folder_of_logs_too(logs: Path, capsys: Captured) -> None:
    assert main([str(logs)]) == 0
    assert "warning" not in capsys.readouterr().out
    rewrite(logs, 5, lambda _: run_log("open", seconds=80, seed=4).replace("6700", "6800"))
    assert main([str(logs)]) == 1
    text = capsys.readouterr().out
    for rule in ("seed", "settings", "speed", "copied-run", "same-system"):
        assert f"{logs}: warning {rule}: " in text


def test_runs_that_all_converge_too_soon_are_asked_about(tmp_path: Path, capsys: Captured) -> None:
    main([str(write_package(tmp_path, evaluations=12))])
    assert "or than the reference's" in capsys.readouterr().out


def test_settings_are_compared_by_value(logs: Path) -> None:
    rewrite(logs, 5, lambda text: text.replace('"value": 6700', '"value": 6700.0'))
    rewrite(logs, 6, lambda text: text.replace("0.000425", "0.000425000005"))
    assert found(logs) == set()


def test_thousands_of_decoys_do_not_hide_in_silence(logs: Path) -> None:
    lines = (logs / "result_0.txt").read_text().splitlines(True)
    decoys = [line.replace("e-", "e-1") for line in lines if "eval_accuracy" in line] * 100
    rewrite(logs, 3, lambda _: "".join([*lines[:8], *decoys, *lines[8:]]))
    assert {"copied-run"} <= {rule for rule, _ in found(logs)}


def counted(change: Callable[[int], int]) -> Text:
    return lambda text: re.sub(r'("epoch_num": )(\d+)', lambda match: f"{match[1]}{change(int(match[2]))}", text)


def test_counts_of_packed_batches_are_compared_and_those_of_a_grid_are_not(tmp_path: Path, logs: Path) -> None:
    for run in range(10):
        rewrite(logs, run, counted(lambda at: at // 150_000 * 150_000))
        if run in (0, 4):
            rewrite(logs, run, counted(lambda at: at + at * at % 811))
    (copy,) = [one for one in judge_package(tmp_path, "5.0.0").all_findings() if one.rule == "copied-run"]
    assert (copy.severity, "result_4.txt: the samples of" in copy.found) == ("warning", True)
