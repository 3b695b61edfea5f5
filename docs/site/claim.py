"""A claim: the first cells of a row in the table of claims."""

from collections.abc import Sequence
from typing import Any, NamedTuple

LEVEL = 0.05  # of significance, of p-values after Holm's correction
NOT_SIGNIFICANT = ", not significant"

Record = dict[str, Any]


class Claim(NamedTuple):
    """The first cells of a row: what is claimed, its figure, the 95 % interval or a range, and the seeds behind it."""

    text: str
    figure: str
    interval: str = ""
    seeds: str = ""


def ratio_claim(text: str, ratio: Sequence[float | None], seeds: str = "") -> Claim:
    """Return the claim of a ratio and its interval, if the record has one."""
    value, low, high = ratio
    ends = ""
    if low is not None and high is not None:
        ends = interval(low, high, ".2f", low > 1 or high < 1)
    return Claim(text, f"{value:.2f}", ends, seeds)


def interval(low: float, high: float, form: str, significant: bool) -> str:
    """Return the ends of an interval, and whether the difference isn't significant."""
    return f"{low:{form}} to {high:{form}}" + ("" if significant else NOT_SIGNIFICANT)
