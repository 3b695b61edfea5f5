"""What a reviewer reads: counts, findings once, places in files, and JSON that strict parsers take."""

import json
from pathlib import Path
from typing import Any

import pytest

from compliance.__main__ import main
from tests.compliance.logs import closed, write
from tests.compliance.mutations import every, no_result, renamed, setting, telling, timed, without
from tests.compliance.packages import write_package
from tests.conftest import Captured


def strictly(text: str) -> Any:
    """Parse JSON as its standard has it: Python alone takes NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("time_ms", [float("nan"), float("inf"), -1e308])
def test_json_is_strict_whatever_a_log_holds(tmp_path: Path, capsys: Captured, time_ms: float) -> None:
    records = timed("run_stop", time_ms)(setting("seed", "\ud800")(closed()))
    path = write(tmp_path / "result_0.txt", setting("opt_base_learning_rate", float("nan"))(records))
    main(["--json", str(path)])
    strictly(capsys.readouterr().out)


def test_many_logs_end_with_their_number_by_verdict_and_share_what_all_have(tmp_path: Path, capsys: Captured) -> None:
    for number in range(3):
        records = telling("run_stop", status="aborted")(closed()) if number == 1 else closed()
        write(tmp_path / f"result_{number}.txt", renamed("seed", "sead")(records))
    assert main([str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert (
        text.splitlines()[-1]
        == f"1 fail: {tmp_path}/result_1.txt; 2 warn: {tmp_path}/result_0.txt, {tmp_path}/result_2.txt"
    )
    assert (text.count("warning seed: "), text.count("not applied: reference-value: ")) == (1, 1)
    assert f"{tmp_path}: warning seed: found in all 3 runs: no seed" in text
    assert main(["--json", str(tmp_path)]) == 1
    logs = strictly(capsys.readouterr().out)
    rules = [[one["rule"] for one in log["in_all_runs"]] for log in logs]
    assert rules == [["seed", "copied-run", "copied-run"], [], []]  # all three are one run
    assert "seed" not in {finding["rule"] for log in logs for finding in log["findings"]}


def test_a_smoke_run_is_shown_as_none_and_its_own_words_decide_nothing(tmp_path: Path, capsys: Captured) -> None:
    assert main([str(write(tmp_path / "result_0.txt", no_result("PASS")(closed())))]) == 1
    assert capsys.readouterr().out.startswith("NO RESULT ")


def test_official_findings_name_the_line_of_the_rule(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "result_0.txt", renamed("opt_lamb_beta_1", "beta")(closed())))])
    assert "what ruleset 5.0.0 asks for (training_5.0.0/closed_bert.yaml:" in capsys.readouterr().out


def test_rules_that_a_log_switches_off_are_listed(tmp_path: Path, capsys: Captured) -> None:
    at_once = every("eval_accuracy", lambda number, one: one.update(time_ms=closed()[-2]["time_ms"] + number - 14))
    otherwise = every("eval_stop", lambda number, one: one.update(key=f"eval_{('stop', 'start')[number % 2]}"))
    path = write(tmp_path / "result_0.txt", without("opt_name")(otherwise(at_once(closed()))))
    main(["--json", str(path)])
    (log,) = strictly(capsys.readouterr().out)
    assert {one["rule"] for one in log["not_applied"]} == {"intervals", "optimizer", "pace", "rate", "reference-value"}
    main([str(path)])
    assert "  not applied: optimizer: opt_name is not in the log" in capsys.readouterr().out


def test_a_package_is_known_by_its_layout_and_tolerates_without_an_error(tmp_path: Path, capsys: Captured) -> None:
    logs = write_package(tmp_path)
    log = logs / "result_4.txt"
    log.write_text(log.read_text().replace("success", "aborted"))
    assert main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "  tolerated toy/bert/result_4.txt:" in text
    assert "error" not in text


@pytest.mark.parametrize("words", [["--division", "closed"], ["."]])
def test_a_package_is_judged_as_a_whole(tmp_path: Path, capsys: Captured, words: list[str]) -> None:
    assert main(["package", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.startswith("package: found --division or several folders; expected ")
