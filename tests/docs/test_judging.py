"""The logs of docs/judging.md have the findings and the question that the page explains, and no others."""

from typing import NamedTuple

import pytest

from compliance import judge_log, judge_logs
from tests.compliance.logs import places
from tests.docs.listing import REPOSITORY

FOLDER = REPOSITORY / "docs" / "examples" / "review"


class Verdict(NamedTuple):
    """What the judge finds in a log."""

    overall: str
    official: str
    findings: set[tuple[str, int | None]]
    """Rule and line."""


VERDICTS = {
    "result_0.txt": Verdict("pass", "pass", set()),
    "result_1.txt": Verdict("fail", "pass", {("on-clock", 29)}),
    "result_2.txt": Verdict("fail", "pass", {("cadence", 112)}),
    "result_3.txt": Verdict("fail", "fail", {("target", 107)}),
    "result_4.txt": Verdict("pass", "pass", set()),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_log_has_the_finding_that_the_page_explains(name: str) -> None:
    judgement = judge_log(FOLDER / name)
    assert Verdict(judgement.verdict, judgement.official.verdict, places(judgement)) == VERDICTS[name]


def test_only_the_copied_run_raises_a_question() -> None:
    asked = [
        (log.path.name, question.topic.id, question.figure) for log in judge_logs(FOLDER) for question in log.questions
    ]
    assert asked == [("result_4.txt", "copied-run", "all 18 accuracies and times equal those of result_0.txt")]
