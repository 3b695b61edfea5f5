import re
from pathlib import Path

import pytest

from compliance.__main__ import main
from compliance.rules import RULES

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "compliance.md").read_text()


def test_the_document_lists_every_rule_as_it_is() -> None:
    sections = re.findall(r"^\*\*([^*\n]+)\*\*\n\n((?:- `.*\n)+)", PAGE, re.MULTILINE)
    rows = [(source, row) for source, rules in sections for row in rules.splitlines()]
    # A rule without a severity is an error; one of severity info gives notes.
    severities = {"error": "", "info": " (note)", "warning": " (warning)", "cannot-judge": " (cannot-judge)"}
    expected = [(rule.source, f"- `{rule.id}`{severities[rule.severity]}: {rule.sentence}") for rule in RULES]
    assert sorted(rows) == sorted(expected)


def test_the_document_shows_what_the_judge_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = re.search(r"`python -m compliance ([^`]*)` prints:\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert shown
    monkeypatch.chdir(REPOSITORY)
    assert main(shown[1].split()) == 1
    assert capsys.readouterr().out == shown[2]


def test_every_rule_has_an_id_of_its_own_and_a_remedy() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.sentence and rule.source and rule.remedy for rule in RULES)
