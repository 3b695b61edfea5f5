"""What a reviewer reads: counts, breaches by line, separate questions, and JSON that strict parsers accept."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compliance.__main__ import main
from compliance.ask import TOPICS
from compliance.rules import RULES
from compliance.rules.fixed_values import FIXED
from tests.compliance.edits import CLOSED
from tests.compliance.logs import REPOSITORY, closed, write
from tests.compliance.mutations import change_file, in_turn, metadata_of, setting, timed, without
from tests.compliance.packages import SOURCES, run_log, write_package
from tests.compliance.published import logs
from tests.conftest import Captured


def strictly(printed: str) -> Any:
    """Parse JSON by its standard, which doesn't have the NaN and Infinity that Python accepts."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(printed, parse_constant=refuse)


def test_json_is_strict_whatever_is_in_a_log(tmp_path: Path, capsys: Captured) -> None:
    records = timed("run_stop", float("inf"))(setting("seed", "\ud800")(closed()))
    path = write(tmp_path / "result_0.txt", setting("opt_base_learning_rate", float("nan"))(records))
    main(["--json", str(path)])
    strictly(capsys.readouterr().out)


def test_breaches_are_sorted_by_line(tmp_path: Path, capsys: Captured) -> None:
    records = in_turn(setting("opt_lamb_beta_2", "x"), setting("opt_lamb_beta_1", "x"), setting("opt_name", "sgd"))(
        closed()
    )
    path = write(tmp_path / "result_0.txt", records)
    assert main([str(path)]) == 1
    printed = capsys.readouterr().out
    lines = [int(line.split(":")[1]) for line in printed.splitlines() if ": error " in line]
    assert lines == sorted(lines)
    assert len(lines) == 3


def test_a_byte_copy_raises_a_question_and_fails_nothing(tmp_path: Path, capsys: Captured) -> None:
    for number in range(4):
        write(tmp_path / f"result_{number}.txt", run_log("open", evaluations=6, seconds=50 + number, seed=number))
    (tmp_path / "result_4.txt").write_bytes((tmp_path / "result_3.txt").read_bytes())
    assert main(["--strict", "--json", str(tmp_path)]) == 0
    questions = [log["questions"] for log in strictly(capsys.readouterr().out)]
    assert [len(each) for each in questions] == [0, 0, 0, 0, 1]
    assert questions[4][0]["question"] == "copied-run"


def test_missing_evidence_fails_a_log_with_strict(tmp_path: Path, capsys: Captured) -> None:
    log = str(write(tmp_path / "log.txt", without("seed")(closed())))
    assert (main([log]), main(["--strict", log])) == (0, 1)
    assert "seed-value" in capsys.readouterr().out


def test_rules_fixed_values_and_questions_are_listed(capsys: Captured) -> None:
    assert main(["rules", "--json"]) == 0
    listed = strictly(capsys.readouterr().out)
    assert [rule["id"] for rule in listed["rules"]] == [rule.id for rule in RULES]
    assert set(listed["rules"][0]) == {"id", "document", "section", "rounds", "says", "remedy"}
    assert [fixed["key"] for fixed in listed["fixed_values"]] == [fixed.key for fixed in FIXED]
    assert [question["id"] for question in listed["questions"]] == [topic.id for topic in TOPICS]
    main(["rules"])
    printed = capsys.readouterr().out
    assert all(fixed.key in printed and fixed.expected in printed for fixed in FIXED)


def test_the_output_for_a_wrong_ruleset_names_one_that_fits(tmp_path: Path, capsys: Captured) -> None:
    old = next(log for name, log in logs().items() if log.ruleset == "1.1.0" and "Google" not in name)
    path = str(write(tmp_path / "result_0.txt", old.records))
    main(["--ruleset", "5.0.0", path])
    assert "--ruleset 1.1.0" in capsys.readouterr().out
    main([path])  # the ruleset follows from its keys and its date
    assert "ruleset 1.1.0: official pass" in capsys.readouterr().out


def test_the_name_of_mlcommons_repository_chooses_the_ruleset(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "training_results_v4.1" / "org" / "result_0.txt", CLOSED))])
    assert "ruleset 4.1.0" in capsys.readouterr().out


def test_a_log_of_today_that_lacks_a_key_is_not_judged_by_an_older_round(tmp_path: Path, capsys: Captured) -> None:
    assert main([str(write(tmp_path / "result_0.txt", without("opt_lamb_epsilon")(closed())))]) == 1
    assert "ruleset 5.0.0: official fail" in capsys.readouterr().out


@pytest.mark.parametrize("ruleset", ["5.1.0", "latest"])
def test_a_ruleset_without_bert_is_refused_by_its_name(ruleset: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--ruleset", ruleset, "."])
    assert ended.value.code == 2
    assert ruleset in capsys.readouterr().err


def test_a_package_is_known_by_its_layout_and_tolerates_one_failure(tmp_path: Path, capsys: Captured) -> None:
    logs_of_package = write_package(tmp_path)
    change_file(logs_of_package / "result_4.txt", metadata_of("run_stop", "status", "aborted"))
    assert main([str(tmp_path)]) == 0
    assert "error" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--division", "closed"], ["."]])
def test_a_package_is_judged_as_a_whole(tmp_path: Path, capsys: Captured, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["package", str(tmp_path), *words])
    assert ended.value.code == 2
    assert f"package: unrecognized arguments: {words[0]}" in capsys.readouterr().err


def test_the_help_of_package_has_its_options_only(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["package", "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m compliance package [-h] [--ruleset R] [--strict] [--json] DIR\n")
    assert "--division" not in printed


def test_a_shared_seed_is_noted_in_a_folder_and_decides_in_a_package(tmp_path: Path, capsys: Captured) -> None:
    for number in range(3):
        write(tmp_path / f"result_{number}.txt", run_log(seconds=90 + number, seed=number % 2))
    assert (main([str(tmp_path)]), main(["--strict", str(tmp_path)])) == (0, 1)
    assert "result_2.txt logs seed 0" in capsys.readouterr().out


def test_with_strict_the_missing_evidence_is_shown_as_the_reason(tmp_path: Path, capsys: Captured) -> None:
    log = str(write(tmp_path / "log.txt", without("seed")(closed())))
    assert main(["--strict", log]) == 1
    (reason,) = (line for line in capsys.readouterr().out.splitlines() if "seed-value" in line)
    assert reason.startswith("  missing evidence: seed-value: ")
    assert reason.endswith(" (--strict fails a log without it)")
    main([log])
    assert "  not applied: seed-value: " in capsys.readouterr().out


def test_a_package_that_strict_fails_shows_the_missing_evidence(tmp_path: Path, capsys: Captured) -> None:
    write_package(tmp_path)
    (tmp_path / SOURCES / "setup.sh").unlink()
    assert main(["package", "--strict", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "  missing evidence: implementation: " in shown
    assert " (--strict fails a package without it)" in shown


def test_a_note_on_all_logs_is_printed_once_and_says_how_many(tmp_path: Path, capsys: Captured) -> None:
    for number in range(2):
        write(tmp_path / f"result_{number}.txt", without("seed")(closed()))
    (tmp_path / "result_2.txt").write_text("no log\n")
    main([str(tmp_path)])
    notes = [line for line in capsys.readouterr().out.splitlines() if "seed-value" in line]
    (note,) = notes
    assert note.startswith("not applied, in 2 of 3 logs: seed-value: ")


def test_percentages_raise_one_question_that_counts_them(tmp_path: Path, capsys: Captured) -> None:
    log = write(
        tmp_path / "log.txt", in_turn(setting("eval_accuracy", 31.5, 1), setting("eval_accuracy", 45.0, 2))(closed())
    )
    assert main(["--json", str(log)]) == 0
    (judged,) = strictly(capsys.readouterr().out)
    (question,) = judged["questions"]
    assert question["figure"] == f"2 accuracies above 1, first 31.5 on line {question['line']}"


def test_a_log_that_is_cut_off_gets_another_remedy_than_a_missing_key(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "log.txt", without("run_stop")(closed())))])
    assert "remedy: take the complete log; " in capsys.readouterr().out
    main([str(write(tmp_path / "log.txt", without("opt_lamb_epsilon")(closed())))])
    assert "remedy: log the key as the ruleset's files " in capsys.readouterr().out


def test_a_python_expression_of_the_checker_is_called_its_condition(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "log.txt", setting("gradient_accumulation_steps", 0)(closed())))])
    assert "expected: the checker's condition v['value'] > 0, by " in capsys.readouterr().out


def test_a_log_without_a_division_is_said_to_have_none(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "log.txt", without("submission_division")(closed())))])
    assert "  bert, no division, ruleset " in capsys.readouterr().out


def test_a_package_that_does_not_exist_is_named_as_such(tmp_path: Path, capsys: Captured) -> None:
    missing = tmp_path / "nosuch"
    assert main(["package", str(missing)]) == 2
    assert capsys.readouterr().err.startswith(f"cannot judge: {missing}: no such folder; ")


def test_logs_of_a_folder_with_other_names_are_named_as_not_judged(tmp_path: Path, capsys: Captured) -> None:
    write(tmp_path / "result_0.txt", closed())
    other_logs = [write(tmp_path / name, closed()) for name in ("result_2.log", "run0.txt")]
    (tmp_path / "notes.txt").write_text("no log\n")
    assert main([str(tmp_path)]) == 0
    names = ", ".join(map(str, other_logs))
    assert capsys.readouterr().err == f"not judged: {names} (in a folder, only result_*.txt are)\n"
    main([str(other_logs[0])])  # a log that is given by its name is judged
    assert capsys.readouterr().err == ""


def test_a_missing_package_is_named_with_the_way_to_install_it() -> None:
    without_site_packages = [sys.executable, "-S", "-m", "compliance", "docs/examples/review"]
    run = subprocess.run(
        without_site_packages, cwd=REPOSITORY, env={}, capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "python -m compliance: yaml is missing; run pip install ./compliance\n"
