"""Present a comparison as text for a terminal, and as a page with its curves."""

from collections.abc import Sequence

from bertbench.report import page
from bertbench.report.charts import Axis, Series, lines
from bertbench.report.comparison import (
    Comparison,
    Difference,
    Estimate,
    Measured,
    Points,
    Ratio,
    Side,
    accuracy_by_time,
    accuracy_curve,
    conclusion,
    loss_curve,
)
from bertbench.report.runs import aligned, cell

_MOST_ROWS = 20
_HEADER = ["measure", "A", "B", "B / A (95 %)"]


def text(found: Comparison) -> str:
    """Return a comparison for a terminal."""
    parts = ["\n".join(f"{letter}: {_named(one)}" for letter, one in (("A", found.a), ("B", found.b)))]
    if found.configuration:
        parts.append("\n".join(aligned(["setting", "A", "B"], _settings(found.configuration), left=3)))
    else:
        parts.append("same known settings on both sides")
    parts.append("\n".join(aligned(_HEADER, _measures(found.measures), left=1)))
    parts.append(
        "\n".join(["accuracy, mean of the runs at each point", *aligned(["samples", "A", "B"], _accuracies(found))])
    )
    return "\n\n".join([*parts, conclusion(found)])


def html(found: Comparison) -> str:
    """Return a comparison as a page."""
    levels = [("target", found.target)] if found.target is not None else []
    return page.page(
        "A and B",
        page.section(
            "Which runs",
            page.listing([page.toned(f"{letter}: {_named(one)}") for letter, one in (("A", found.a), ("B", found.b))]),
            page.paragraph(conclusion(found)),
        ),
        page.section("Measures", page.table(_HEADER, _measures(found.measures), "means ± half of the 95 % interval")),
        page.section(
            "Settings",
            page.table(["setting", "A", "B"], _settings(found.configuration))
            if found.configuration
            else page.paragraph("The known settings are the same on both sides."),
        ),
        page.section(
            "Curves",
            page.panels(
                lines(
                    "Accuracy by samples, mean of the runs", _both(accuracy_curve(found.a), accuracy_curve(found.b)),
                    Axis("training samples"), Axis("accuracy"), levels,
                ),
                lines(
                    "Accuracy by time, mean of the runs", _both(accuracy_by_time(found.a), accuracy_by_time(found.b)),
                    Axis("seconds"), Axis("accuracy"), levels,
                ),
                lines(
                    "Loss, mean of the runs", _both(loss_curve(found.a), loss_curve(found.b)),
                    Axis("step"), Axis("loss"),
                ),
            ),
        ),
    )  # fmt: skip


def _both(a: Points, b: Points) -> list[Series]:
    return [Series("A", a), Series("B", b)]


def _named(one: Side) -> str:
    return f"{one.name} ({len(one.reached)} of {len(one.runs)} runs reached the target)"


def _settings(differences: Sequence[Difference]) -> list[list[str]]:
    return [[one.name, *(cell(" | ".join(texts) or "-") for texts in (one.a, one.b))] for one in differences]


def _measures(measures: Sequence[Measured]) -> list[list[str]]:
    return [[one.name, _estimate(one.a), _estimate(one.b), _ratio(one.ratio)] for one in measures]


def _estimate(one: Estimate | None) -> str:
    if one is None:
        return "-"
    digits = 0 if one.mean >= 1e4 else 1
    return f"{one.mean:,.{digits}f}" + ("" if one.half_interval is None else f" ± {one.half_interval:,.{digits}f}")


def _ratio(one: Ratio | None) -> str:
    if one is None:
        return "-"
    return f"{one.ratio:.3f}" + ("" if one.low is None else f" ({one.low:.3f} to {one.high:.3f})")


def _accuracies(found: Comparison) -> list[list[str]]:
    """Return accuracy on both sides at the samples of either, thinned to fit a screen."""
    a, b = dict(accuracy_curve(found.a)), dict(accuracy_curve(found.b))
    samples = sorted(a.keys() | b.keys())
    stride = -(-len(samples) // _MOST_ROWS) or 1
    shown = samples[stride - 1 :: stride]
    return [[f"{x:,.0f}", *(f"{one[x]:.4f}" if x in one else "-" for one in (a, b))] for x in shown]
