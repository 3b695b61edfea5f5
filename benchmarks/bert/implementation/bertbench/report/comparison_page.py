"""Present a comparison as text for a terminal, and as a page with its curves."""

from typing import Any

from bertbench.common.markup import aligned, cell
from bertbench.report import page
from bertbench.report.charts import Axis, lines

_HEADER = ["measure", "A", "B", "B / A (95 %)"]
_SETTINGS = ["setting", "A", "B"]
_MEANS = "mean of all runs that reached the target, ± half of its 95 % interval"
_MOST_REASONS = 2  # of a log; `bertbench judge` lists all
_CURVES = (
    ("Accuracy by samples", "accuracy", "training samples"),
    ("Accuracy by time", "accuracy_by_time", "seconds"),
    ("Loss", "loss", "step"),
)


def text(found: dict[str, Any]) -> str:
    """Return a comparison for a terminal."""
    settings = _settings(found)
    parts = [
        [*_sides(found), *_failed(found)],
        aligned(_SETTINGS, settings, left=3) if settings else ["same known settings on both sides"],
        [*aligned(_HEADER, _measures(found), left=1), _MEANS],
        [found["conclusion"]],
    ]
    return "\n\n".join(map("\n".join, parts))


def html(found: dict[str, Any]) -> str:
    """Return a comparison as a page."""
    settings = _settings(found)
    curves = [
        lines(
            f"{title}, mean of the runs", {letter.upper(): found[letter][field] for letter in "ab"},
            Axis(x), Axis(field.partition("_")[0]),
        )
        for title, field, x in _CURVES
    ]  # fmt: skip
    same = page.paragraph("The known settings are the same on both sides.")
    return page.page(
        "A and B",
        page.section("Which runs", *map(page.paragraph, [*_sides(found), *_failed(found), found["conclusion"]])),
        page.section("Measures", page.table(_HEADER, _measures(found), _MEANS)),
        page.section("Settings", page.table(_SETTINGS, settings) if settings else same),
        page.section("Curves", page.panels(*curves)),
    )


def _sides(found: dict[str, Any]) -> list[str]:
    sides = ((letter.upper(), found[letter]) for letter in "ab")
    return [
        f"{letter}: {side['name']} ({side['reached']} of {len(side['runs'])} runs reached the target{_score(side)})"
        for letter, side in sides
    ]


def _score(side: dict[str, Any]) -> str:
    return "" if side["score_s"] is None else f"; MLPerf's score {side['score_s']:.1f} s, without fastest and slowest"


def _failed(found: dict[str, Any]) -> list[str]:
    """Return why runs that ended with success are in no mean."""
    return [
        f"{letter.upper()}: {log} doesn't count, because the judge fails it: {line}"
        for letter in "ab"
        for log, lines in found[letter]["failed"].items()
        for line in lines[:_MOST_REASONS]
    ]


def _settings(found: dict[str, Any]) -> list[list[str]]:
    return [[one["name"], *(cell(" | ".join(one[letter]) or "-") for letter in "ab")] for one in found["configuration"]]


def _measures(found: dict[str, Any]) -> list[list[str]]:
    return [[one["name"], _estimate(one["a"]), _estimate(one["b"]), _ratio(one["ratio"])] for one in found["measures"]]


def _estimate(one: dict[str, float] | None) -> str:
    if one is None:
        return "-"
    mean, half, _ = one.values()
    digits = 0 if mean >= 1e4 else 1
    return f"{mean:,.{digits}f}" + ("" if half is None else f" ± {half:,.{digits}f}")


def _ratio(one: dict[str, float] | None) -> str:
    if one is None:
        return "-"
    ratio, low, high = one.values()
    return f"{ratio:.3f}" + ("" if low is None else f" ({low:.3f} to {high:.3f})")
