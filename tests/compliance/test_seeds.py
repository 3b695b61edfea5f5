"""The seeds in a closed package: every run logs one with its source line, and no two runs log the same one."""

from pathlib import Path
from typing import Any

import pytest

from compliance import judge_package
from tests.compliance.mutations import again, change_file, damaged, metadata_of, renamed, setting
from tests.compliance.packages import breached_rules, lacking_evidence, official_package_checker, write_package


@pytest.mark.parametrize(("eighth", "fourth"), [(9, 9), (9.0, "9"), (9, " 9"), (9, "\u0669")])
def test_two_runs_may_not_log_seeds_that_int_makes_equal(tmp_path: Path, eighth: Any, fourth: Any) -> None:
    logs = write_package(tmp_path)
    change_file(logs / "result_7.txt", setting("seed", eighth))
    change_file(logs / "result_3.txt", setting("seed", fourth))
    assert "seed" in breached_rules(tmp_path)


@pytest.mark.parametrize(("field", "value"), [("file", "y.py"), ("lineno", 2)])
def test_equal_seeds_from_different_source_lines_are_not_a_breach(tmp_path: Path, field: str, value: Any) -> None:
    logs = write_package(tmp_path)
    change_file(logs / "result_3.txt", setting("seed", 8), metadata_of("seed", field, value))
    assert breached_rules(tmp_path) == set()


@pytest.mark.parametrize("value", [None, "0x8", [8]])
def test_a_seed_that_int_does_not_convert_is_a_breach(tmp_path: Path, value: Any) -> None:
    logs = write_package(tmp_path)
    change_file(logs / "result_7.txt", setting("seed", value))
    assert breached_rules(tmp_path) >= {"seed"}


def test_a_seed_without_its_source_line_fails_as_by_the_official_seed_checker(tmp_path: Path) -> None:
    logs = write_package(tmp_path / "org")
    change_file(logs / "result_7.txt", damaged("seed", '"lineno"', '"at"'))
    assert not official_package_checker(tmp_path / "org", tmp_path).passed
    assert breached_rules(tmp_path / "org") == {"seed"}


def test_a_log_with_a_seed_twice_from_one_source_line_fails_as_by_the_official_seed_checker(tmp_path: Path) -> None:
    log = write_package(tmp_path / "org") / "result_7.txt"
    change_file(log, again("seed"))
    assert not official_package_checker(tmp_path / "org", tmp_path).passed
    assert breached_rules(tmp_path / "org") == {"seed"}


def test_a_log_may_give_its_seed_from_two_source_lines(tmp_path: Path) -> None:
    log = write_package(tmp_path) / "result_7.txt"
    change_file(log, again("seed"), metadata_of("seed", "file", "y.py", 1))
    assert breached_rules(tmp_path) == set()


def test_a_run_that_cannot_be_read_fails_the_package_as_the_official_seed_checker_does(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    with (logs / "result_4.txt").open("a") as log:
        log.write(":::MLLOG {\n")
    assert breached_rules(tmp_path) == {"seed"}


def test_a_bypass_leaves_a_run_without_a_seed_to_the_review(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    change_file(logs / "result_3.txt", renamed("seed", "sead"))
    assert breached_rules(tmp_path) == {"seed"}
    (logs / "package_checker_params").write_text("seed-checker-bypass")
    assert breached_rules(tmp_path) == set()
    assert lacking_evidence(tmp_path) == {"seed"}


def test_a_bypass_does_not_excuse_equal_seeds_under_rules_that_forbid_them(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    change_file(logs / "result_5.txt", setting("seed", 8))
    (logs / "package_checker_params").write_text("seed-checker-bypass")
    assert breached_rules(tmp_path) == {"seed"}


def test_before_4_1_a_bypass_leaves_equal_seeds_to_the_review(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    change_file(logs / "result_5.txt", setting("seed", 8))
    (logs / "package_checker_params").write_text("seed-checker-bypass")
    judgement = judge_package(tmp_path, "4.0.0")
    assert "seed" not in {breach.rule.id for breach in judgement.all_breaches()}
    assert "seed" in {unchecked.rule for unchecked in judgement.results[0].not_applied}
