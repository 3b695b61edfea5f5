"""Each rule and each question finds, on its line, the edit of a small closed log that is made for it."""

import gzip
import json
import re
from pathlib import Path

import pytest

from compliance.judge import Judgement, judge_log
from compliance.rules import RULES
from compliance.rules.fixed_values import FIXED
from tests.compliance.edits import BREACHES, CLOSED, FREE, MISSING, QUESTIONS, UNSEEN, Edit
from tests.compliance.logs import at, closed, demo, judged, official_verdict, places, write
from tests.compliance.mutations import again, changed, every, in_turn, renamed, setting, timed


def of(folder: Path, edit: Edit, strict: bool = False) -> Judgement:
    return judge_log(write(folder / "result_0.txt", edit.applied()), edit.ruleset, strict=strict)


def named(edit: Edit) -> str:
    return f"{edit.rule}: {edit.change.__name__}"[:60]


def test_the_small_log_passes_without_a_finding_a_question_or_a_note(tmp_path: Path) -> None:
    judgement = judged(tmp_path, CLOSED, strict=True)
    assert (judgement.verdict, judgement.breaches, judgement.questions, judgement.not_applied) == ("pass", (), (), ())


@pytest.mark.parametrize("edit", BREACHES, ids=named)
def test_a_broken_rule_is_found_on_its_line_beside_the_official_verdict(tmp_path: Path, edit: Edit) -> None:
    judgement = of(tmp_path, edit)
    assert (edit.rule, edit.line) in places(judgement)
    assert judgement.verdict == edit.verdict
    assert all(breach.found and breach.expected for breach in judgement.breaches)
    assert judgement.official.verdict == official_verdict(tmp_path / "result_0.txt", edit.ruleset)


@pytest.mark.parametrize("edit", MISSING, ids=named)
def test_missing_evidence_fails_a_log_only_with_strict(tmp_path: Path, edit: Edit) -> None:
    judgement = of(tmp_path, edit)
    assert (judgement.verdict, judgement.breaches) == ("pass", ())
    assert (edit.rule, True) in {(unchecked.rule, unchecked.asked) for unchecked in judgement.not_applied}
    assert of(tmp_path, edit, strict=True).verdict == "fail"


@pytest.mark.parametrize("edit", UNSEEN, ids=named)
def test_missing_values_that_no_rule_asks_for_are_noted_and_fail_nothing(tmp_path: Path, edit: Edit) -> None:
    judgement = of(tmp_path, edit, strict=True)
    assert (judgement.verdict, judgement.breaches) == ("pass", ())
    assert [(unchecked.rule, unchecked.asked) for unchecked in judgement.not_applied] == [(edit.rule, False)]


@pytest.mark.parametrize("edit", QUESTIONS, ids=named)
def test_a_question_has_a_figure_and_decides_nothing(tmp_path: Path, edit: Edit) -> None:
    judgement = of(tmp_path, edit, strict=True)
    assert (judgement.verdict, judgement.breaches) == ("pass", ())
    assert [(question.topic.id, question.line) for question in judgement.questions] == [(edit.rule, edit.line)]
    assert judgement.questions[0].figure


@pytest.mark.parametrize("edit", FREE, ids=named)
def test_a_value_that_no_rule_fixes_is_not_a_breach(tmp_path: Path, edit: Edit) -> None:
    judgement = of(tmp_path, edit, strict=True)
    assert (judgement.verdict, judgement.breaches, judgement.questions) == ("pass", (), ())


def test_every_rule_about_a_log_has_an_edit() -> None:
    elsewhere = {"readable", "division-required", "division-system"}  # test_safety.py
    checked = {rule.id for rule in RULES if rule.check is not None}
    assert checked - {edit.rule for edit in [*BREACHES, *MISSING, *UNSEEN]} == elsewhere - {"readable"}
    assert {fixed.key for fixed in FIXED} <= set(re.findall(r'"key": "(\w+)"', CLOSED))


def test_a_number_of_accelerators_that_does_not_fit_the_log_raises_a_question(tmp_path: Path) -> None:
    write(tmp_path / "result_0" / "system.json", json.dumps({"number_of_nodes": "1", "accelerators_per_node": "5"}))
    (question,) = judged(tmp_path, CLOSED).questions
    assert (question.topic.id, question.line) == ("description", 9)


@pytest.mark.parametrize(
    ("run_start", "init_stop", "division", "ruleset", "breaks"),
    [
        (30.2, 29.9, "closed", "5.0.0", False),  # the wait for the clock isn't initialisation
        (30.0, 31.0, "closed", "5.0.0", False),  # the clock started when the maximum was exceeded
        (31.0, 30.5, "closed", "5.0.0", True),
        (31.0, 30.5, "open", "5.0.0", False),
        (241.0, 240.5, "open", "5.0.0", True),
        (31.0, 30.5, "open", "1.0.0", True),
        (21.0, 20.5, "closed", "0.7.0", True),
        (21.0, 20.5, "closed", "1.0.0", False),
    ],
)
def test_initialisation_counts_from_init_start_to_init_stop(
    tmp_path: Path, run_start: float, init_stop: float, division: str, ruleset: str, breaks: bool
) -> None:
    run_start_ms = 1_747_000_060_100
    init_start_ms = run_start_ms - round(run_start * 60_000)
    content = changed(
        CLOSED,
        setting("submission_division", division),
        timed("init_start", init_start_ms),
        timed("init_stop", init_start_ms + round(init_stop * 60_000)),
    )
    rules = {breach.rule.id for breach in judged(tmp_path, content, ruleset).breaches}
    assert ("init-time" in rules) == breaks


def test_a_rule_that_is_not_in_a_rounds_text_is_listed_as_not_applied(tmp_path: Path) -> None:
    judgement = judged(tmp_path, changed(CLOSED, setting("seed", "random")), "4.0.0")
    assert "seed-value" not in {breach.rule.id for breach in judgement.breaches}
    (unchecked,) = [unchecked for unchecked in judgement.not_applied if unchecked.rule == "seed-value"]
    assert not unchecked.asked


@pytest.mark.parametrize("rule", ["optimizer", "cadence"])
def test_round_0_7_has_only_the_rules_of_its_checker(tmp_path: Path, rule: str) -> None:
    broken = next(edit for edit in BREACHES if edit.rule == rule).applied()
    judgement = judged(tmp_path, broken, "0.7.0")
    assert rule in {unchecked.rule for unchecked in judgement.not_applied}
    assert rule not in {breach.rule.id for breach in judgement.breaches}


LINE_9 = CLOSED.splitlines()[8]
# Verdict, rule, and the text of line 9.
LINES = [
    ("fail", "record", ":::MLLOG [1]"),
    ("fail", "record", ":::MLLOG {}"),
    ("fail", "record", ":::MLLOG "),
    ("fail", "record", ':::MLLOG {"time_ms": 1, "key": "x", "metadata": {}}'),
    ("fail", "record", ':::MLLOG {"time_ms": 1e400000, "key": "x"'),
    ("cannot-judge", "record-unambiguous", LINE_9.replace('"file"', '"file": 7, "file"')),
    ("cannot-judge", "readable", ":::MLLOG " + "[" * 100_000),
    ("cannot-judge", "readable", ":::MLLOG " + "x" * (2 << 20)),
]


@pytest.mark.parametrize(("verdict", "rule", "damage"), LINES, ids=lambda part: part[:40])
def test_a_damaged_line_is_found(tmp_path: Path, verdict: str, rule: str, damage: str) -> None:
    lines = CLOSED.splitlines()
    lines[8] = damage
    judgement = judged(tmp_path, lines)
    assert (rule, 9) in places(judgement)
    assert judgement.verdict == verdict


@pytest.mark.parametrize("content", [CLOSED.encode("utf-16"), gzip.compress(CLOSED.encode()), "", "hello\n"])
def test_a_file_that_is_not_a_log_cannot_be_judged(tmp_path: Path, content: str | bytes) -> None:
    judgement = judged(tmp_path, content)
    assert (judgement.verdict, [breach.rule.id for breach in judgement.breaches]) == ("cannot-judge", ["readable"])


def test_many_breaches_of_a_rule_are_counted(tmp_path: Path) -> None:
    records = closed()
    for index in range(10):
        records[at(records, "eval_start", index)]["time_ms"] = -1
    early = [breach for breach in judged(tmp_path, records).breaches if breach.rule.id == "on-clock"]
    assert len(early) == 5
    assert "5 more" in early[-1].found


def test_an_open_run_may_stop_short_of_the_target_that_it_states(tmp_path: Path) -> None:
    short = in_turn(again("seed", value=0.6), renamed("seed", "bertbench_target", 1))(demo())
    judgement = judged(tmp_path, short, strict=True)
    assert judgement.breaches == ()
    (unchecked,) = [unchecked for unchecked in judgement.not_applied if unchecked.rule == "target"]
    assert not unchecked.asked


def test_accuracies_that_are_all_above_1_are_a_breach(tmp_path: Path) -> None:
    percent = every("eval_accuracy", lambda _, record: record.update(value=100 * record["value"]))
    assert ("accuracy", 42) in places(judged(tmp_path, changed(CLOSED, percent)))


def test_caches_are_cleared_before_open_runs_too(tmp_path: Path) -> None:
    kept = changed(CLOSED, setting("cache_clear", False), setting("submission_division", "open"))
    assert ("cache-clear", True) in {(one.rule, one.asked) for one in judged(tmp_path, kept).not_applied}
