"""Tabulate what a group's runs spent: seconds of start-up, wall clock over restarts, joules."""

from pathlib import Path
from typing import Any, NamedTuple

from bertbench.report.markup import cell

Spent = list[tuple[str, dict[str, float]]]
"""Names of rows, and their amounts by column."""


class Detail(NamedTuple):
    """A table of a group's runs."""

    caption: str
    header: list[str]
    rows: list[list[str]]


def details(content: dict[str, Any]) -> list[Detail]:
    """Return the details that some run of an object of `runs.summarized` has recorded."""
    runs = [(cell(Path(row["log"]).stem), row) for row in content["runs"]]
    startup = [
        (label, seconds)
        for name, row in runs
        if (pieces := row["startup"])
        for label, seconds in (
            (name, pieces["untimed_s"] | pieces["timed_s"]),
            ("slowest rank", pieces["slowest_s"]),
        )
    ]
    energy = [(name, {"joules": found["joules"], **found["watts"]}) for name, row in runs if (found := row["energy"])]
    tables = {
        "start-up: seconds of each piece from launch to the end of the first step": startup,
        "wall clock: seconds from submission to the end, over restarts and requeues": [
            (name, row["ledger"]) for name, row in runs if row["ledger"]
        ],
        "energy: joules from run_start to run_stop, and mean watts": energy,
    }
    return [_detail(caption, rows) for caption, rows in tables.items() if rows]


def _detail(caption: str, spent: Spent) -> Detail:
    columns = list(dict.fromkeys(column for _, amounts in spent for column in amounts))
    rows = [[name, *(f"{of[each]:z,.2f}" if each in of else "-" for each in columns)] for name, of in spent]
    return Detail(caption, ["run", *map(cell, columns)], rows)
