"""Tabulate what a group's runs spent: seconds of start-up, wall clock over restarts, joules."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
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
    pieces = {name: row["startup"] for name, row in runs if row["startup"]}
    first = {name: found["untimed_s"] | found["timed_s"] for name, found in pieces.items()}
    slowest = {name: found["slowest_s"] for name, found in pieces.items()}
    startup = [*_summary(first, ""), *_summary(slowest, ", slowest rank")]
    energy = [(name, {"joules": found["joules"], **found["watts"]}) for name, row in runs if (found := row["energy"])]
    tables = {
        "start-up: seconds of each piece from launch to the end of the first step": startup,
        "wall clock: seconds from submission to the end, over restarts and requeues": [
            (name, row["ledger"]) for name, row in runs if row["ledger"]
        ],
        "energy: joules from run_start to run_stop, and mean watts": energy,
    }
    return [_detail(caption, rows) for caption, rows in tables.items() if rows]


def _summary(runs: dict[str, dict[str, float]], of: str) -> Spent:
    """Return one run's amounts, or the mean and the most of several runs', which are nearly equal."""
    if len(runs) < 2:
        return [(f"{name}{of}", amounts) for name, amounts in runs.items()]
    values: dict[str, list[float]] = defaultdict(list)
    for amounts in runs.values():
        for column, value in amounts.items():
            values[column].append(value)
    named: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (("mean", mean), ("most", max))
    return [
        (f"{name} of {len(runs)} runs{of}", {column: summary(known) for column, known in values.items()})
        for name, summary in named
    ]


def _detail(caption: str, spent: Spent) -> Detail:
    columns = list(dict.fromkeys(column for _, amounts in spent for column in amounts))
    rows = [[name, *(f"{of[each]:z,.2f}" if each in of else "-" for each in columns)] for name, of in spent]
    return Detail(caption, ["run", *map(cell, columns)], rows)
