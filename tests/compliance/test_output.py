"""What a reviewer reads: counts, breaches by line, separate questions, and JSON that strict parsers accept."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.main import main as bertbench
from compliance.__main__ import main
from compliance.ask import TOPICS
from compliance.rules import RULES
from tests.compliance.edits import CLOSED, QUESTIONS
from tests.compliance.logs import closed, demo, text, write
from tests.compliance.mutations import again, both, renamed, setting, timed, without
from tests.compliance.packages import run_log, write_package
from tests.compliance.published import logs
from tests.conftest import Captured


def strictly(printed: str) -> Any:
    """Parse JSON by its standard, which doesn't have the NaN and Infinity that Python accepts."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(printed, parse_constant=refuse)


@pytest.mark.parametrize("time_ms", [float("nan"), float("inf"), -1e308])
def test_json_is_strict_whatever_is_in_a_log(tmp_path: Path, capsys: Captured, time_ms: float) -> None:
    records = timed("run_stop", time_ms)(setting("seed", "\ud800")(closed()))
    path = write(tmp_path / "result_0.txt", setting("opt_base_learning_rate", float("nan"))(records))
    main(["--json", str(path)])
    strictly(capsys.readouterr().out)


def test_breaches_are_sorted_by_line_and_a_remedy_is_printed_once(tmp_path: Path, capsys: Captured) -> None:
    records = both(setting("opt_lamb_beta_2", "x"), setting("opt_lamb_beta_1", "x"), setting("opt_name", "sgd"))(
        closed()
    )
    path = write(tmp_path / "result_0.txt", records)
    assert main([str(path)]) == 1
    printed = capsys.readouterr().out
    lines = [int(line.split(":")[1]) for line in printed.splitlines() if ": error " in line]
    assert lines == sorted(lines)
    assert len(lines) == 3
    says = "expected: A closed run's tunable hyperparameters are finite numbers"
    assert printed.count(f'{says} (training_rules.adoc 1.0 to 5.0, "Hyperparameters")') == 2
    assert printed.count("remedy: log the number that the optimizer or the schedule uses") == 1


def test_a_byte_copy_raises_a_question_that_the_last_line_counts(tmp_path: Path, capsys: Captured) -> None:
    for number in range(4):
        write(tmp_path / f"result_{number}.txt", run_log("open", evaluations=6, seconds=50 + number, seed=number))
    (tmp_path / "result_4.txt").write_bytes((tmp_path / "result_3.txt").read_bytes())
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "5 pass, 1 question"
    copied = f"{tmp_path}/result_4.txt: copied-run: all 6 accuracies and times equal those of result_3.txt"
    assert f"  Questions for the submitter:\n  {copied}\n    usual: no two runs have" in printed
    assert main(["--strict", "--json", str(tmp_path)]) == 0
    questions = [log["questions"] for log in strictly(capsys.readouterr().out)]
    assert [len(each) for each in questions] == [0, 0, 0, 0, 1]
    assert questions[4][0]["question"] == "copied-run"


def test_after_several_logs_a_last_line_counts_the_verdicts(tmp_path: Path, capsys: Captured) -> None:
    for number in range(3):
        content = run_log("open", seconds=90 + number, seed=number, status="aborted" if number == 1 else "success")
        write(tmp_path / f"result_{number}.txt", content)
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"2 pass, 1 fail ({tmp_path}/result_1.txt)"


def test_a_rule_that_was_checked_in_no_log_of_a_folder_is_printed_once(tmp_path: Path, capsys: Captured) -> None:
    for number in range(3):
        write(tmp_path / f"result_{number}.txt", run_log(seconds=90 + number, seed=number))
    main([str(tmp_path)])
    assert capsys.readouterr().out.count("  not applied: optimizer: the log doesn't give opt_name") == 1


def test_questions_never_fail_a_log(tmp_path: Path, capsys: Captured) -> None:
    for edit in QUESTIONS:
        assert main(["--strict", str(write(tmp_path / "log.txt", edit.applied()))]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "1 pass, 1 question"


def test_missing_evidence_fails_a_log_with_strict(tmp_path: Path, capsys: Captured) -> None:
    log = str(write(tmp_path / "log.txt", without("seed")(closed())))
    assert (main([log]), main(["--strict", log])) == (0, 1)
    assert "not applied: seed-value: the log gives no seed" in capsys.readouterr().out


def test_a_smoke_run_is_shown_as_no_result(tmp_path: Path, capsys: Captured) -> None:
    smoke = both(again("seed", value="PASS"), renamed("seed", "not_a_result", 1))(closed())
    assert main([str(write(tmp_path / "result_0.txt", smoke))]) == 1
    assert capsys.readouterr().out.startswith("NO RESULT ")


def test_official_breaches_name_the_line_of_the_rule(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "result_0.txt", renamed("opt_lamb_beta_1", "beta")(closed())))])
    printed = capsys.readouterr().out
    assert "error official: found no opt_lamb_beta_1\n" in printed
    assert "expected: exactly one opt_lamb_beta_1, by training_5.0.0/closed_bert.yaml:" in printed


def test_rules_and_questions_are_listed_as_json(capsys: Captured) -> None:
    assert main(["rules", "--json"]) == 0
    listed = strictly(capsys.readouterr().out)
    assert [rule["id"] for rule in listed["rules"]] == [rule.id for rule in RULES]
    assert set(listed["rules"][0]) == {"id", "document", "section", "rounds", "says", "remedy"}
    assert [question["id"] for question in listed["questions"]] == [topic.id for topic in TOPICS]


def test_rules_are_listed_by_their_section(capsys: Captured) -> None:
    assert bertbench(["judge", "rules"]) == 0
    printed = capsys.readouterr().out
    assert "training_rules.adoc, Run Results\n" in printed
    assert "  init-time (rounds 1.0 to 5.0): Initialisation is untimed for 30 minutes" in printed


def test_the_output_for_a_wrong_ruleset_names_one_that_fits(tmp_path: Path, capsys: Captured) -> None:
    old = next(log for name, log in logs().items() if log.ruleset == "1.1.0" and "Google" not in name)
    path = str(write(tmp_path / "result_0.txt", old.records))
    main(["--ruleset", "5.0.0", path])
    assert "this log has the keys of round 1.1; try --ruleset 1.1.0" in capsys.readouterr().out
    main([path])  # the ruleset follows from its keys and its date
    assert "ruleset 1.1.0: official pass" in capsys.readouterr().out


def test_the_name_of_mlcommons_repository_chooses_the_ruleset(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "training_results_v4.1" / "org" / "result_0.txt", CLOSED))])
    assert "ruleset 4.1.0" in capsys.readouterr().out


def test_a_log_of_today_that_lacks_a_key_is_not_judged_by_an_older_round(tmp_path: Path, capsys: Captured) -> None:
    assert main([str(write(tmp_path / "result_0.txt", without("opt_lamb_epsilon")(closed())))]) == 1
    assert "ruleset 5.0.0: official fail" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ruleset", "5.1.0", "."], "argument --ruleset: MLPerf 5.1.0 doesn't include BERT; use 5.0.0\n"),
        (["--ruleset", "6.0.0", "."], "argument --ruleset: MLPerf 6.0.0 doesn't include BERT; use 5.0.0\n"),
        (["--ruleset", "1.2.3", "."], "found 1.2.3; expected one of 0.7.0, 1.0.0, "),
        (["--ruleset", "latest", "."], "found latest; expected one of 0.7.0, 1.0.0, "),
    ],
)
def test_a_ruleset_without_bert_is_refused_in_one_line(words: list[str], said: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_path_that_does_not_exist_is_named(tmp_path: Path, capsys: Captured) -> None:
    assert main([str(tmp_path / "nosuch")]) == 2
    assert capsys.readouterr().err.startswith(f"{tmp_path}/nosuch: no such file or folder; give a log, ")


@pytest.mark.parametrize("program", ["bertbench judge", "python -m compliance"])
def test_help_shows_the_name_that_the_judge_was_called_by(program: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["--help"], program)
    assert capsys.readouterr().out.startswith(f"usage: {program} ")


def test_a_package_is_known_by_its_layout_and_tolerates_one_failure(tmp_path: Path, capsys: Captured) -> None:
    logs_of_package = write_package(tmp_path)
    log = logs_of_package / "result_4.txt"
    log.write_text(log.read_text().replace("success", "aborted"))
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "  toy/bert/result_4.txt:" in printed
    assert ": tolerated run-success: " in printed
    assert "error" not in printed


@pytest.mark.parametrize("words", [["--division", "closed"], ["."]])
def test_a_package_is_judged_as_a_whole(tmp_path: Path, capsys: Captured, words: list[str]) -> None:
    assert main(["package", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.startswith("package: found --division or several folders; give one package")


def test_one_log_has_no_last_line(tmp_path: Path, capsys: Captured) -> None:
    main([str(write(tmp_path / "result_0.txt", text(demo())))])
    assert capsys.readouterr().out.startswith("PASS ")


def test_a_shared_seed_is_noted_in_a_folder_and_decides_in_a_package(tmp_path: Path, capsys: Captured) -> None:
    for number in range(3):
        write(tmp_path / f"result_{number}.txt", run_log(seconds=90 + number, seed=number % 2))
    assert (main([str(tmp_path)]), main(["--strict", str(tmp_path)])) == (0, 1)
    said = "not applied: seed: result_2.txt logs seed 0 on the same source line as result_0.txt"
    assert said in capsys.readouterr().out


def test_the_exit_code_is_2_if_one_of_several_paths_does_not_exist(tmp_path: Path, capsys: Captured) -> None:
    log = str(write(tmp_path / "result_0.txt", CLOSED))
    assert main([log, str(tmp_path / "nosuch")]) == 2
    assert capsys.readouterr().out.startswith(f"PASS         {log}")
