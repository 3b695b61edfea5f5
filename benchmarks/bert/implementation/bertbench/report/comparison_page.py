"""Present a comparison as text for a terminal, and as a page with its curves."""

from typing import Any

from bertbench.report import page
from bertbench.report.charts import Axis, lines
from bertbench.report.markup import aligned, cell

_HEADER = ["measure", "A", "B", "B / A (95 %)"]
_SETTINGS = ["setting", "A", "B"]
_CURVES = (
    ("Accuracy by samples", "accuracy", "training samples"),
    ("Accuracy by time", "accuracy_by_time", "seconds"),
    ("Loss", "loss", "step"),
)


def text(found: dict[str, Any]) -> str:
    """Return a comparison for a terminal."""
    settings = _settings(found)
    parts = [
        _sides(found),
        aligned(_SETTINGS, settings, left=3) if settings else ["same known settings on both sides"],
        aligned(_HEADER, _measures(found), left=1),
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
        page.section("Which runs", *map(page.paragraph, [*_sides(found), found["conclusion"]])),
        page.section("Measures", page.table(_HEADER, _measures(found), "means ± half of the 95 % interval")),
        page.section("Settings", page.table(_SETTINGS, settings) if settings else same),
        page.section("Curves", page.panels(*curves)),
    )


def _sides(found: dict[str, Any]) -> list[str]:
    sides = ((letter.upper(), found[letter]) for letter in "ab")
    return [
        f"{letter}: {side['name']} ({side['reached']} of {len(side['runs'])} runs reached the target)"
        for letter, side in sides
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
