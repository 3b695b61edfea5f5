"""The seeds in a closed package: every run logs one with its source line, and no two runs log the same one."""

from pathlib import Path

import pytest

from compliance import judge_package
from tests.compliance.packages import (
    breached_rules,
    give_seed,
    lacking_evidence,
    official_package_checker,
    rewrite,
    write_package,
)

PLACE = '"metadata": {"file": "x.py", "lineno": 1}'


@pytest.mark.parametrize(
    ("eighth", "fourth"), [("8", "8"), ("8.0", '"8"'), ("8", '" 8"'), ("8", "8.0"), ("8", '"\\u0668"')]
)
def test_two_runs_may_not_log_seeds_that_int_makes_equal(tmp_path: Path, eighth: str, fourth: str) -> None:
    logs = write_package(tmp_path)
    give_seed(logs / "result_7.txt", eighth)
    give_seed(logs / "result_3.txt", fourth)
    assert "seed" in breached_rules(tmp_path)


@pytest.mark.parametrize("place", [PLACE.replace("x.py", "y.py"), PLACE.replace("1", "2")])
def test_equal_seeds_from_different_source_lines_are_not_a_breach(tmp_path: Path, place: str) -> None:
    logs = write_package(tmp_path)
    rewrite(logs / "result_3.txt", f'"seed", "value": 4, {PLACE}', f'"seed", "value": 8, {place}')
    assert breached_rules(tmp_path) == set()


@pytest.mark.parametrize("value", ["null", '"eight"', '"0x8"', "[8]"])
def test_a_seed_that_int_does_not_convert_is_a_breach(tmp_path: Path, value: str) -> None:
    logs = write_package(tmp_path)
    give_seed(logs / "result_7.txt", value)
    assert breached_rules(tmp_path) >= {"seed"}


@pytest.mark.parametrize("field", ["file", "lineno"])
def test_a_seed_without_its_source_line_fails_as_by_the_official_seed_checker(tmp_path: Path, field: str) -> None:
    logs = write_package(tmp_path / "org")
    rewrite(logs / "result_7.txt", f'"seed", "value": 8, {PLACE}', f'"seed", "value": 8, {PLACE.replace(field, "at")}')
    assert not official_package_checker(tmp_path / "org", tmp_path).passed
    assert breached_rules(tmp_path / "org") == {"seed"}


def test_a_log_with_a_seed_twice_from_one_source_line_fails_as_by_the_official_seed_checker(tmp_path: Path) -> None:
    log = write_package(tmp_path / "org") / "result_7.txt"
    seed = seed_line(log)
    rewrite(log, seed, seed * 2)
    assert not official_package_checker(tmp_path / "org", tmp_path).passed
    assert breached_rules(tmp_path / "org") == {"seed"}


def test_a_log_may_give_its_seed_from_two_source_lines(tmp_path: Path) -> None:
    log = write_package(tmp_path) / "result_7.txt"
    seed = seed_line(log)
    rewrite(log, seed, seed + seed.replace("x.py", "y.py"))
    assert breached_rules(tmp_path) == set()


def test_a_run_that_cannot_be_read_fails_the_package_as_the_official_seed_checker_does(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    with (logs / "result_4.txt").open("a") as log:
        log.write(":::MLLOG {\n")
    assert breached_rules(tmp_path) == {"seed"}


def test_a_bypass_leaves_a_run_without_a_seed_to_the_review(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    rewrite(logs / "result_3.txt", '"key": "seed"', '"key": "sead"')
    assert breached_rules(tmp_path) == {"seed"}
    (logs / "package_checker_params").write_text("seed-checker-bypass")
    assert breached_rules(tmp_path) == set()
    assert lacking_evidence(tmp_path) == {"seed"}


def test_a_bypass_does_not_excuse_equal_seeds_under_rules_that_forbid_them(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    give_seed(logs / "result_5.txt", "8")
    (logs / "package_checker_params").write_text("seed-checker-bypass")
    assert breached_rules(tmp_path) == {"seed"}


def test_before_4_1_a_bypass_leaves_equal_seeds_to_the_review(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    give_seed(logs / "result_5.txt", "8")
    (logs / "package_checker_params").write_text("seed-checker-bypass")
    judgement = judge_package(tmp_path, "4.0.0")
    assert "seed" not in {breach.rule.id for breach in judgement.all_breaches()}
    reasons = [unchecked.reason for unchecked in judgement.results[0].not_applied if unchecked.rule == "seed"]
    assert ["result_7.txt logs seed 8" in reason for reason in reasons] == [True]


def seed_line(log: Path) -> str:
    (line,) = [line for line in log.read_text().splitlines(keepends=True) if '"seed"' in line]
    return line
