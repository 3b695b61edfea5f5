"""Power files of a package, judged by our rules and the official tools, and the energy that follows from them."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mlperf_logging.result_summarizer import result_summarizer

from compliance import judge_package
from compliance.package.package import PackageJudgement
from compliance.read.power_file import Readings, joules, read_power_file
from tests.compliance.mutations import added, added_line, change_file, damaged, renamed, timed, without
from tests.compliance.packages import (
    RUNS,
    START,
    SYSTEM,
    line,
    mutated,
    official_package_checker,
    rewrite,
    write_package,
)

RUN_S = 100  # of the first run, which starts 1 s after START; each next run takes 1 s more
WATTS = 300

WattsAtSecond = Callable[[int], float]


def node_file(seconds: int, watts: WattsAtSecond | None = None, every_ms: int = 500) -> str:
    """A node whose meter reads from 0.5 s after START to 2 s after a run of so many seconds, 300 W on average."""
    watts = watts or noisy(seconds)
    start = 500
    stop = 1000 + 1000 * seconds + 2000
    times = range(start + every_ms, stop + 1, every_ms)
    readings = [line("power_reading", watts(time // 1000), time, host="node_0") for time in times]
    return "\n".join(
        [
            line("power_measurement_start", time_ms=start),
            line("conversion_eff", 1.0, start),
            *readings,
            line("power_measurement_stop", time_ms=stop),
            "",
        ]
    )


def noisy(seed: int) -> WattsAtSecond:
    return lambda second: WATTS + 20 * (random.Random(1000 * seed + second).random() - 0.5)


def measure(power: Path, name: str, content: Callable[[int], str]) -> Path:
    """Write a file of this name for each run, by the run's seconds; returns the folder of all runs' files."""
    for run in range(RUNS):
        (power / f"result_{run}").mkdir(parents=True, exist_ok=True)
        (power / f"result_{run}" / name).write_text(content(RUN_S + run))
    return power


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "org"


@pytest.fixture
def power(root: Path) -> Path:
    """The power files of a package that passes: each run a node of 300 W."""
    logs = write_package(root, "open", evaluations=2)
    return measure(logs / "power", "node_0.txt", node_file)


def judged(power: Path) -> PackageJudgement:
    return judge_package(power.parents[3], "5.0.0")


def breaches(power: Path) -> list[tuple[str, str]]:
    """The rule and the finding of each breach."""
    return [(breach.rule.id, breach.found) for breach in judged(power).all_breaches()]


def lacking_evidence(power: Path) -> list[str]:
    """The rules that ask for what the power files don't give."""
    (result,) = judged(power).results
    return [unchecked.rule for unchecked in result.not_applied if unchecked.asked]


def noted(power: Path) -> list[tuple[str, str]]:
    """The rule and the reason of what isn't judged although nothing asks for it."""
    (result,) = judged(power).results
    return [(unchecked.rule, unchecked.reason) for unchecked in result.not_applied if not unchecked.asked]


def test_a_measured_package_passes(power: Path) -> None:
    judgement = judged(power)
    assert (judgement.verdict, judgement.all_breaches(), judgement.not_applied) == ("pass", [], ())


def test_the_energy_is_the_mean_of_the_runs_that_count(power: Path) -> None:
    judgement = judged(power)
    (result,) = judgement.results
    assert result.energy_j == pytest.approx(WATTS * 104.5, rel=2e-3)  # runs of 101 to 108 s count
    assert judgement.as_json()["results"][0]["energy_j"] == result.energy_j


def test_the_energy_is_the_official_summarizer_s(power: Path) -> None:
    wavering = node_file(RUN_S, lambda second: 200 + 7 * (second % 13), every_ms=700)
    (power / "result_0" / "node_0.txt").write_text(wavering)
    (power / "result_0" / "sw_0.txt").write_text(line("interconnect_power_est", 40))
    log = power.parent / "result_0.txt"
    # private there, but its command gives no energy of a single run
    official = result_summarizer._compute_total_power(str(power.parent), str(log), 1e3 * RUN_S, "5.0.0")
    ours = joules(read_power_file(power / "result_0" / "node_0.txt"), 1e3 * RUN_S)
    assert ours is not None
    assert ours + 40 * RUN_S == pytest.approx(official, rel=1e-12)


def test_a_nodes_energy_equals_a_calculation_by_hand() -> None:
    # 10 W for 1 s, 40 W for 3 s, and a reading after the stop; 130 J in 4 s, of a run of 8 s, at 90 %
    node = Readings(1000, 5000, [(500, 99), (2000, 10), (5000, 40), (6000, 1000)], efficiency=0.9)
    assert joules(node, 8000) == pytest.approx(0.9 * 260)


Change = Callable[[Path], object]


def written_as(content: str) -> Change:
    return lambda file: file.write_text(content)


def link_to_an_endless_file(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


HOSTILE = "\n".join([*(line("power_reading", value, 7_250) for value in ("300", -5, None, True)), ":::MLLOG {"])
FIRST_TIME = f'"time_ms": {START + 1_000}'


@pytest.mark.parametrize(
    ("rule", "break_it"),
    [
        ("power-files", link_to_an_endless_file),
        ("power-coverage", mutated(without("power_measurement_start"))),
        ("power-coverage", mutated(timed("power_measurement_start", START + 2_000))),
        ("power-coverage", mutated(timed("power_measurement_stop", START + 90_000))),
        ("power-rate", written_as(node_file(RUN_S + 4, every_ms=2_000))),
        ("power-readings", mutated(added_line("power_measurement_stop", HOSTILE))),
        ("power-readings", mutated(damaged("power_reading", FIRST_TIME, f'"time_ms": 1, {FIRST_TIME}'))),
        ("power-readings", mutated(added("power_measurement_start", START + 400, "conversion_eff", 0.8))),
    ],
)
def test_a_broken_measurement_fails(power: Path, rule: str, break_it: Change) -> None:
    break_it(power / "result_4" / "node_0.txt")
    ((breached, text),) = breaches(power)
    assert breached == rule
    assert "result_4" in text


def without_its_folder(file: Path) -> None:
    shutil.rmtree(file.parent)


def numbered_1(file: Path) -> None:
    file.rename(file.with_name("node_1.txt"))


def a_second_node(file: Path) -> None:
    shutil.copy(file, file.with_name("node_1.txt"))


@pytest.mark.parametrize("break_it", [numbered_1, a_second_node])
def test_one_run_may_have_odd_power_files_as_the_official_package_checker_allows(
    power: Path, root: Path, tmp_path: Path, break_it: Change
) -> None:
    break_it(power / "result_4" / "node_0.txt")
    assert official_package_checker(root, tmp_path).passed
    assert breaches(power) == []
    assert ["result_4" in reason for rule, reason in noted(power) if rule == "power-files"] == [True]


def only_a_switch(file: Path) -> None:
    file.write_text(line("interconnect_power_est", 50))
    file.rename(file.with_name("sw_0.txt"))


@pytest.mark.parametrize("break_it", [without_its_folder, Path.unlink, only_a_switch])
def test_a_run_that_converged_was_measured(power: Path, break_it: Change) -> None:
    break_it(power / "result_4" / "node_0.txt")
    assert {rule for rule, _ in breaches(power)} == {"power-files", "power-nodes"}
    assert all("result_4" in text for _, text in breaches(power))


def test_the_run_that_failed_may_lack_power_files(power: Path, root: Path, tmp_path: Path) -> None:
    shutil.rmtree(power / "result_4")
    change_file(power.parent / "result_4.txt", renamed("init_stop", "init_end"))
    assert official_package_checker(root, tmp_path).passed
    assert judged(power).verdict == "pass"


def test_two_runs_with_odd_power_files_fail(power: Path) -> None:
    for run in ("result_4", "result_5"):
        (power / run / "node_0.txt").rename(power / run / "node_1.txt")
    assert [rule for rule, _ in breaches(power)].count("power-files") == 2


@pytest.fixture
def power_of_two_nodes(power: Path, root: Path) -> Path:
    """The power files of a system of two nodes, of which only the first is measured."""
    rewrite(root / SYSTEM, '"number_of_nodes": "1"', '"number_of_nodes": "2"')
    return power


def measure_second_node(power: Path) -> None:
    measure(power, "node_1.txt", lambda seconds: node_file(seconds, noisy(seconds + 1000)))


def test_every_node_is_measured(power_of_two_nodes: Path) -> None:
    assert [rule for rule, _ in breaches(power_of_two_nodes)].count("power-nodes") == RUNS


def test_the_power_of_the_interconnect_is_asked_for(power_of_two_nodes: Path) -> None:
    measure_second_node(power_of_two_nodes)
    assert breaches(power_of_two_nodes) == []
    assert set(lacking_evidence(power_of_two_nodes)) == {"power-interconnect"}


def test_the_energy_is_the_sum_of_nodes_and_interconnect(power_of_two_nodes: Path) -> None:
    measure_second_node(power_of_two_nodes)
    measure(power_of_two_nodes, "sw_0.txt", lambda _: line("interconnect_power_est", 50) + "\n")
    assert (breaches(power_of_two_nodes), lacking_evidence(power_of_two_nodes)) == ([], [])
    (result,) = judged(power_of_two_nodes).results
    assert result.energy_j == pytest.approx((2 * WATTS + 50) * 104.5, rel=2e-3)


@pytest.mark.parametrize("watts", [lambda _: 0.3, lambda _: 9e5])
def test_no_rule_bounds_the_readings_of_a_meter(power: Path, watts: WattsAtSecond) -> None:
    (power / "result_5" / "node_0.txt").write_text(node_file(RUN_S + 5, watts))
    assert (judged(power).verdict, breaches(power)) == ("pass", [])


def without_readings(power: Path, count: int) -> None:
    """Remove readings of a run, one after another; a meter reads every half second."""
    file = power / "result_5" / "node_0.txt"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:19] + lines[19 + count :]))


def test_a_meter_may_miss_a_second(power: Path) -> None:
    without_readings(power, 3)  # 2.0 s between readings
    assert breaches(power) == []


def test_a_meter_may_not_miss_two_seconds(power: Path) -> None:
    without_readings(power, 5)
    assert [rule for rule, _ in breaches(power)] == ["power-rate"]
