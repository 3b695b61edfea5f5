from pathlib import Path

from compliance.rules import RULES

DOCUMENT = Path(__file__).parents[2] / "docs" / "compliance.md"


def test_the_document_lists_every_rule_as_it_is() -> None:
    rows = [one for one in DOCUMENT.read_text().splitlines() if one.startswith("| `")]
    written = [one for one in rows if one.count(" | ") == 3]  # the table of what our logs add has fewer columns
    assert written == [f"| `{one.id}` | {one.severity} | {one.sentence} | {one.source} |" for one in RULES]


def test_every_rule_has_an_id_of_its_own_and_a_remedy() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.sentence and rule.source and rule.remedy for rule in RULES)
