"""Power files of a package, judged by our rules and the official tools; the energy that they come to."""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlperf_logging.result_summarizer import result_summarizer

from compliance import judge_package, package_text
from compliance.package.package import PackageJudgement
from compliance.read.power_file import Readings, joules, read_power_file
from tests.compliance.packages import START, line, write_package

RUN_S = 100  # run_start is 1 s after START
WATTS = 300


def node_file(seconds: int, watts: Callable[[int], float] | None = None, every_ms: int = 500) -> str:
    """A node whose meter reads from 0.5 s after START to 2 s after a run of so many seconds, 300 W on average."""
    watts = watts or noisy(seconds)
    stop = 1000 * seconds + 3000
    times = range(500 + every_ms, stop + 1, every_ms)
    return "\n".join(
        [
            line("power_measurement_start", time_ms=500), line("conversion_eff", 1.0, 500),
            *(line("power_reading", watts(time // 1000), time, host="node_0") for time in times),
            line("power_measurement_stop", time_ms=stop), "",
        ]
    )  # fmt: skip


def noisy(seed: int) -> Callable[[int], float]:
    return lambda second: WATTS + 20 * (random.Random(1000 * seed + second).random() - 0.5)


def measure(power: Path, name: str, content: Callable[[int], str]) -> Path:
    """Write a file for each run; returns the folder of all."""
    for run in range(10):
        (power / f"result_{run}").mkdir(parents=True, exist_ok=True)
        (power / f"result_{run}" / name).write_text(content(run))
    return power


@pytest.fixture
def power(tmp_path: Path) -> Path:
    """The power files of a package that passes: each run a node of 300 W."""
    folder = write_package(tmp_path / "org", "open") / "power"
    return measure(folder, "node_0.txt", lambda run: node_file(RUN_S + run))


def judged(power: Path) -> PackageJudgement:
    return judge_package(power.parents[3], "5.0.0")


def errors(power: Path) -> list[tuple[str, str]]:
    return [(breach.rule.id, breach.found) for breach in judged(power).all_breaches()]


def missing(power: Path) -> list[tuple[str, str]]:
    (result,) = judged(power).results
    return [(unchecked.rule, unchecked.reason) for unchecked in result.not_applied if unchecked.asked]


def test_a_measured_package_passes_and_gives_the_energy_of_the_runs_that_count(power: Path) -> None:
    judgement = judged(power)
    assert (judgement.verdict, judgement.all_breaches(), judgement.not_applied) == ("pass", [], ())
    (result,) = judgement.results
    # runs of 101 to 108 s count
    assert result.energy_j == pytest.approx(WATTS * 104.5, rel=2e-3)
    assert f"time to train 104.5 s, energy {result.energy_j:,.0f} J" in package_text(judgement)
    assert judgement.as_json()["results"][0]["energy_j"] == result.energy_j


def test_the_official_checker_and_summarizer_agree(power: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mlperf_logging.package_checker", str(tmp_path / "org"), "training", "5.0.0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "FOUND NO ERRORS, SUCCESS" in done.stderr
    warnings = [text for text in done.stderr.splitlines() if text.startswith("WARNING - ")]
    # it takes the folder power/ itself for a log of another name; about what is in it nothing
    assert {text[10:36] for text in warnings} == {"Detected 11 total files in", "Unknown files in result di"}
    wavering = node_file(RUN_S, lambda second: 200 + 7 * (second % 13), every_ms=700)
    (power / "result_0" / "node_0.txt").write_text(wavering)
    (power / "result_0" / "sw_0.txt").write_text(line("interconnect_power_est", 40))
    log = power.parent / "result_0.txt"
    official = result_summarizer._compute_total_power(str(power.parent), str(log), 1e3 * RUN_S, "5.0.0")
    ours = joules(read_power_file(power / "result_0" / "node_0.txt"), 1e3 * RUN_S)
    assert ours is not None
    assert ours + 40 * RUN_S == pytest.approx(official, rel=1e-12)


def test_a_node_s_energy_by_hand() -> None:
    # 10 W for 1 s, 40 W for 3 s, and a reading after the stop; 130 J in 4 s, of a run of 8 s, at 90 %
    node = Readings(1000, 5000, [(500, 99), (2000, 10), (5000, 40), (6000, 1000)], efficiency=0.9)
    assert joules(node, 8000) == pytest.approx(0.9 * 260)
    assert joules(Readings(None, 5000, [(2000, 10)]), 8000) is None
    assert joules(Readings(1000, None, [(2000, 10), (3000, 30)]), 8000) == pytest.approx(160)


def edit(change: Callable[[str], str]) -> Callable[[Path], object]:
    """Change the file of a run's node."""
    return lambda file: file.write_text(change(file.read_text()))


def without(key: str, instead: str = "") -> Callable[[Path], object]:
    lines = rf'.*"{key}".*\n'
    return edit(lambda text: f"{instead}\n" + re.sub(lines, "", text))


HOSTILE = "\n".join([*(line("power_reading", value, 7_250) for value in ("300", -5, None, True)), ":::MLLOG {"])


@pytest.mark.parametrize(
    ("rule", "found_there", "break_it"),
    [
        ("power-files", "result_4/node_0.txt: ", lambda file: (file.unlink(), file.symlink_to("/dev/zero"))),
        ("power-coverage", "doesn't cover the run", without("power_measurement_start")),
        ("power-coverage", "doesn't cover the run", without("power_measurement_stop")),
        ("power-coverage", "cover the run",
         without("power_measurement_start", line("power_measurement_start", time_ms=2_000))),
        ("power-coverage", "cover the run",
         without("power_measurement_stop", line("power_measurement_stop", time_ms=90_000))),
        ("power-rate", "2.0 s without a reading", edit(lambda _: node_file(RUN_S + 4, every_ms=2_000))),
        ("power-readings", "5 unusable records", edit(lambda text: text + HOSTILE)),
        ("power-readings", "1 unusable", edit(lambda text: line("conversion_eff", 0.8, 400) + "\n" + text)),
    ],
)  # fmt: skip
def test_a_broken_measurement_fails(
    power: Path, rule: str, found_there: str, break_it: Callable[[Path], object]
) -> None:
    break_it(power / "result_4" / "node_0.txt")
    assert any(name == rule and "result_4" in text and found_there in text for name, text in errors(power))


def official_package_checker_passes(power: Path, scratch: Path) -> bool:
    command = [sys.executable, "-m", "mlperf_logging.package_checker", str(power.parents[3]), "training", "5.0.0"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True)
    return "FOUND NO ERRORS, SUCCESS" in done.stderr


@pytest.mark.parametrize(
    ("found_there", "break_it"),
    [
        ("result_4: no file", lambda file: shutil.rmtree(file.parent)),
        ("result_4: node_1.txt", lambda file: file.rename(file.with_name("node_1.txt"))),
        ("result_4: node_0.txt, node_1.txt", lambda file: shutil.copy(file, file.with_name("node_1.txt"))),
    ],
)
def test_one_run_may_lack_power_files_as_the_official_package_checker_allows(
    power: Path, tmp_path: Path, found_there: str, break_it: Callable[[Path], object]
) -> None:
    break_it(power / "result_4" / "node_0.txt")
    assert official_package_checker_passes(power, tmp_path)
    assert errors(power) == []
    (result,) = judged(power).results
    reasons = [unchecked.reason for unchecked in result.not_applied if unchecked.rule == "power-files"]
    assert [found_there in reason for reason in reasons] == [True]
    log = power.parent / "result_7.txt"  # a second run, which lacks a key
    log.write_text(log.read_text().replace('"key": "init_stop"', '"key": "init_end"'))
    assert not official_package_checker_passes(power, tmp_path)
    assert {"failed-runs", "power-files"} <= {rule for rule, _ in errors(power)}


@pytest.mark.parametrize("name", ["node_one.txt", "node_1.txt"])
def test_two_runs_with_odd_power_files_fail(power: Path, name: str) -> None:
    for run in ("result_4", "result_5"):
        (power / run / "node_0.txt").rename(power / run / name)
    texts = [text for rule, text in errors(power) if rule == "power-files"]
    assert texts == [f"results/toy/bert/power/{run}: {name}" for run in ("result_4", "result_5")]


def test_other_files_than_power_files_are_noted_only(power: Path, tmp_path: Path) -> None:
    for run in range(10):
        (power / f"result_{run}" / "meter.log").touch()
    assert official_package_checker_passes(power, tmp_path)
    judgement = judge_package(power.parents[3], "5.0.0", strict=True)
    assert (judgement.verdict, judgement.all_breaches()) == ("pass", [])
    assert {unchecked.rule for unchecked in judgement.results[0].not_applied} == {"power-files"}


def test_every_node_is_measured_and_so_is_what_connects_them(power: Path, tmp_path: Path) -> None:
    system = tmp_path / "org" / "systems" / "toy.json"
    system.write_text(re.sub(r'("number_of_nodes": )"1"', r'\1"2"', system.read_text()))
    assert {text for rule, text in errors(power) if rule == "power-nodes"} == {
        f"results/toy/bert/power/result_{run}: 1 measured nodes" for run in range(10)
    }
    measure(power, "node_1.txt", lambda run: node_file(RUN_S + run, noisy(90 + run)))
    assert (errors(power), {rule for rule, _ in missing(power)}) == ([], {"power-interconnect"})
    measure(power, "sw_0.txt", lambda _: line("interconnect_power_est", 50) + "\n")
    assert (errors(power), missing(power)) == ([], [])
    assert judged(power).results[0].energy_j == pytest.approx((2 * WATTS + 50) * 104.5, rel=2e-3)


def test_readings_come_in_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "node_0.txt"
    file.write_text("\n".join(line("power_reading", 1, time) for time in (9, 3, 5)))
    assert [time - START for time, _ in read_power_file(file).readings] == [3, 5, 9]


@pytest.mark.parametrize("watts", [lambda _: 300.0, lambda second: 290.0 + second % 5, lambda _: 0.3, lambda _: 9e5])
def test_no_rule_bounds_what_a_meter_reads(power: Path, watts: Callable[[int], float]) -> None:
    (power / "result_5" / "node_0.txt").write_text(node_file(RUN_S + 5, watts))
    assert (judged(power).verdict, errors(power)) == ("pass", [])


def test_a_meter_may_miss_a_second_and_not_two_and_measures_a_minute(power: Path) -> None:
    file = power / "result_5" / "node_0.txt"
    lines = file.read_text().splitlines(True)
    for gone, failed, few in ((3, [], 0), (5, ["3.0 s without a reading"], 0), (150, ["75.5 s without a reading"], 1)):
        file.write_text("".join(lines[:19] + lines[19 + gone :]))
        assert [text.split(": ")[1] for rule, text in errors(power) if rule == "power-rate"] == failed
        assert missing(power) == []  # the rules only suggest a minute
        (result,) = judged(power).results
        assert [unchecked.rule for unchecked in result.not_applied] == ["power-coverage"] * few
