"""What runs spent, as sections of the page: their wall clock by what it went to, and their energy."""

from typing import Any

from bertbench.common.timeline import BUCKETS
from bertbench.report import page
from bertbench.report.charts import Axis, Bar, bars
from bertbench.report.runs import ENERGY_TITLE, LEDGER_TITLE, energy_rows, ledger_rows


def wall_clock(summary: dict[str, Any]) -> list[str]:
    """Return the section on goodput, of runs that left a timeline; nothing where none did."""
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
    """Return the section on energy, of runs whose power was sampled; nothing where none was."""
    header, rows = energy_rows(summary)
    if not rows:
        return []
    measured = [row["energy"] for row in summary["runs"] if row["energy"]]
    drawn = [Bar(row[0], energy["watts"], f"{row[1]} J") for row, energy in zip(rows, measured, strict=True)]
    return [
        page.heading("Energy"),
        page.panels(bars("Power in the mean, by node", drawn, Axis("watts"))),
        page.table(header, rows, ENERGY_TITLE),
    ]
