"""Choose the ruleset that a log or a package indicates, by the name of its folder, or by its keys and date."""

import re
from pathlib import Path

from compliance.official import DEFAULT_RULESET
from compliance.official.checker import required_keys, rulesets
from compliance.read.description import DIVISIONS
from compliance.read.run import RunFacts

_REPOSITORY = re.compile(r"training_results_v(\d\.\d)")
"""MLCommons publishes each round in a repository of this name."""
_ROUND = re.compile(r"\d\.\d(\.\d)?")
_PUBLISHED_MS = {
    "0.7.0": 1_596_000_000_000, "1.0.0": 1_625_000_000_000, "1.1.0": 1_638_300_000_000, "2.0.0": 1_656_500_000_000,
    "2.1.0": 1_668_000_000_000, "3.0.0": 1_687_800_000_000, "3.1.0": 1_699_500_000_000, "4.0.0": 1_718_200_000_000,
    "4.1.0": 1_731_500_000_000, "5.0.0": 1_749_000_000_000,
}  # fmt: skip
"""When each round's results were published: its runs are older than this, and the next round's runs are newer."""


def accepted_rulesets() -> tuple[str, ...]:
    """Return the rulesets under which a BERT log can pass."""
    return tuple(ruleset for ruleset in rulesets() if ruleset <= DEFAULT_RULESET)


def refused_ruleset(word: str) -> str:
    """Return what is wrong with a ruleset that isn't accepted, and which one to use."""
    is_later_round = _ROUND.fullmatch(word) and word > DEFAULT_RULESET
    if word in rulesets() or is_later_round:
        return f"MLPerf {word} doesn't include BERT; use {DEFAULT_RULESET}"
    return f"found {word}; expected one of {', '.join(accepted_rulesets())}"


def ruleset_of_path(path: Path) -> str | None:
    """Return the ruleset of the round in whose repository a path lies; None if the path names no round."""
    for part in reversed(path.absolute().parts):
        repository = _REPOSITORY.search(part)
        if repository:
            ruleset = f"{repository[1]}.0"
            if ruleset in accepted_rulesets():
                return ruleset
    return None


def fitting_rulesets(facts: RunFacts) -> list[str]:
    """Return the rulesets whose required keys are all in a log, oldest first."""
    if facts.division not in DIVISIONS:
        return []
    keys = facts.keys()
    return [ruleset for ruleset in accepted_rulesets() if required_keys(ruleset, facts.division) <= keys]


def ruleset_of_log(facts: RunFacts) -> str | None:
    """Return the ruleset that a log's keys and date indicate; None if the keys fit the default, or don't fit the date.

    So a log of today that lacks a key isn't taken for a log of an older round.
    """
    fits = fitting_rulesets(facts)
    if DEFAULT_RULESET in fits:
        return None
    dated = _round_of(facts.started_ms)
    return dated if dated in fits else None


def ruleset_hint(facts: RunFacts, ruleset: str) -> str | None:
    """Return a ruleset to try if a log lacks keys of the one it was judged by; None if it has them, or if none fits.

    If several fit, this is the one of the log's date, or else the newest.
    """
    fits = fitting_rulesets(facts)
    if not fits or ruleset in fits:
        return None
    dated = _round_of(facts.started_ms)
    best = dated if dated in fits else fits[-1]
    return f"this log has the keys of round {best.removesuffix('.0')}; try --ruleset {best}"


def _round_of(time_ms: float | None) -> str | None:
    if time_ms is None:
        return None
    return next((ruleset for ruleset, published in _PUBLISHED_MS.items() if time_ms < published), None)
