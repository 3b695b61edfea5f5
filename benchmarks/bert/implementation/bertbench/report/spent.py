"""Draw the page's sections on costs: the division of the wall clock, and energy."""

from typing import Any

from bertbench.common.timeline import BUCKETS
from bertbench.report import page
from bertbench.report.charts import Axis, Bar, bars
from bertbench.report.runs import ENERGY_TITLE, LEDGER_TITLE, energy_rows, ledger_rows


def wall_clock(summary: dict[str, Any]) -> list[str]:
    """Return the section on goodput, for runs with a timeline; nothing if there are none."""
    header, rows = ledger_rows(summary)
    if not rows:
        return []
    spent = [dict(zip(BUCKETS, map(float, seconds), strict=True)) for _, _, *seconds, _ in rows]
    somewhere = [bucket for bucket in BUCKETS if any(seconds[bucket] for seconds in spent)]
    drawn = [
        Bar(row[0], {bucket: seconds[bucket] for bucket in somewhere}, f"goodput {row[-1]}")
        for row, seconds in zip(rows, spent, strict=True)
    ]
    return [
        page.heading("Goodput"),
        page.panels(bars("Wall clock, from submission to the end", drawn, Axis("seconds"))),
        page.table(header, rows, LEDGER_TITLE),
    ]


def energy(summary: dict[str, Any]) -> list[str]:
    """Return the section on energy, for runs with sampled power; nothing if there are none."""
    header, rows = energy_rows(summary)
    if not rows:
        return []
    measured = [row["energy"] for row in summary["runs"] if row["energy"]]
    drawn = [Bar(row[0], energy["watts"], f"{row[1]} J") for row, energy in zip(rows, measured, strict=True)]
    return [
        page.heading("Energy"),
        page.panels(bars("Mean power by node", drawn, Axis("watts"))),
        page.table(header, rows, ENERGY_TITLE),
    ]
