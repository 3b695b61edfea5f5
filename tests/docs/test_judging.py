"""The logs of docs/judging.md have the findings and the question that the page explains, and no others."""

from pathlib import Path
from typing import NamedTuple

import pytest

from compliance import judge_log, judge_logs
from tests.compliance.logs import judged, places
from tests.docs.listing import REPOSITORY

PAGE = (REPOSITORY / "docs" / "judging.md").read_text()
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
UNDONE = {
    "result_1.txt": {"1795614365762": "1795614305762"},
    "result_2.txt": {"2476320": "2551360", '"epoch_count": 75040': '"epoch_count": 150080'},
    "result_3.txt": {"0.719951": "0.72"},
}
"""What to replace in a bad log, so that it breaks no rule."""


def test_the_folder_has_these_logs_and_the_page_names_each() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(VERDICTS)
    assert [name for name in VERDICTS if name not in PAGE] == []


@pytest.mark.parametrize("name", VERDICTS)
def test_a_log_has_the_finding_that_the_page_explains(name: str) -> None:
    judgement = judge_log(FOLDER / name)
    assert Verdict(judgement.verdict, judgement.official.verdict, places(judgement)) == VERDICTS[name]


@pytest.mark.parametrize("name", UNDONE)
def test_a_bad_log_passes_without_its_edit(name: str, tmp_path: Path) -> None:
    content = (FOLDER / name).read_text()
    for edited, original in UNDONE[name].items():
        assert edited in content
        content = content.replace(edited, original)
    assert judged(tmp_path, content).verdict == "pass"


def test_only_the_copied_run_raises_a_question() -> None:
    asked = [
        (log.path.name, question.topic.id, question.figure) for log in judge_logs(FOLDER) for question in log.questions
    ]
    assert asked == [("result_4.txt", "copied-run", "all 18 accuracies and times equal those of result_0.txt")]


@pytest.mark.parametrize("name", VERDICTS)
def test_a_log_says_that_it_is_made_up(name: str) -> None:
    first, *_ = (FOLDER / name).read_text().splitlines()
    assert first == "This log is made up, as an example for docs/judging.md. It is not a result."
