from compliance.rules import RULES


def test_every_rule_has_an_id_of_its_own_and_a_remedy() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.sentence and rule.source and rule.remedy for rule in RULES)
