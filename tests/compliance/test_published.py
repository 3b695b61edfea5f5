"""Courses of published logs: what strictness must not hold against them, and what it rightly finds."""

from pathlib import Path

import pytest

from tests.compliance.logs import at, judged, places
from tests.compliance.mutations import from_key
from tests.compliance.published import COURSES, Course, log


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.name)
def test_a_published_course_passes_with_what_its_counts_hide_at_most(tmp_path: Path, course: Course) -> None:
    judgement = judged(tmp_path, log(course), "3.0.0")
    constant = len(set(course.samples)) == 1
    assert judgement.verdict == "pass"
    assert [finding.rule for finding in judgement.findings] == ["epoch-num-grows"] * constant
    assert {"cadence", "samples"} & {rule for rule, _ in judgement.not_applied} == (
        {"cadence", "samples"} if constant else set()
    )


def test_a_run_that_stops_its_clock_two_evaluations_early_is_found_as_in_a_published_result(tmp_path: Path) -> None:
    records = log(COURSES[2])
    stop = records.pop(at(records, "run_stop"))
    stopped = at(records, "eval_accuracy", -3)
    stop["time_ms"] = records[stopped]["time_ms"] + 1
    judgement = judged(tmp_path, [*records[: stopped + 1], stop, *records[stopped + 1 :]], "3.0.0")
    rules = {finding.rule for finding in judgement.findings if finding.severity == "error"}
    assert "target-on-clock" in rules


@pytest.mark.parametrize("course", COURSES[:3], ids=lambda course: course.name)
@pytest.mark.parametrize("accuracy", [0.7201, 0.7203333721160889])
def test_an_invented_accuracy_is_no_whole_number_of_predictions(
    tmp_path: Path, course: Course, accuracy: float
) -> None:
    records = log(course)
    records[at(records, "eval_accuracy", -1)]["value"] = accuracy
    line = at(records, "eval_accuracy", -1) + 1
    assert ("noise", line) in places(judged(tmp_path, records, "3.0.0"))


def test_four_tenths_of_a_second_cut_from_a_steady_run_show_against_its_own_spread(tmp_path: Path) -> None:
    records = log(COURSES[0])
    cut = at(records, "eval_accuracy", 8)
    from_key("eval_accuracy", -480, 8)(records)
    assert ("pace", cut + 1) in places(judged(tmp_path, records, "3.0.0"))
