"""A claim: the first cells of a row in the table of claims."""

from collections.abc import Sequence
from typing import Any, NamedTuple

NO_DIFFERENCE = "no difference shown"

Record = dict[str, Any]


class Claim(NamedTuple):
    """What is claimed, its figure, its 95 % interval or a range, and the seeds behind it."""

    text: str
    figure: str
    interval: str = ""
    seeds: str = ""


def ratio_claim(text: str, ratio: Sequence[float | None], seeds: str = "") -> Claim:
    """Return the claim of a ratio and its interval, if the record has one."""
    value, low, high = ratio
    ends = ""
    if low is not None and high is not None:
        ends = interval(low, high, ".2f", "" if low > 1 or high < 1 else NO_DIFFERENCE)
    return Claim(text, f"{value:.2f}", ends, seeds)


def interval(low: float, high: float, form: str, verdict: str = "") -> str:
    """Return the ends of an interval, with a verdict on the difference if there is one."""
    return f"{low:{form}} to {high:{form}}" + (f"; {verdict}" if verdict else "")
