"""Tabulate what a group's runs spent: seconds of start-up, wall clock over restarts, joules."""

from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bertbench.common.markup import cell

Amounts = dict[str, float]
"""Amounts by what they were spent on."""


class Detail(NamedTuple):
    """A table of a group's runs."""

    caption: str
    header: list[str]
    rows: list[list[str]]


def details(content: dict[str, Any]) -> list[Detail]:
    """Return the details that some run of an object of `runs.summarized` has recorded."""
    runs = [(cell(Path(row["log"]).stem), row) for row in content["runs"]]
    energy = {name: {"joules": found["joules"], **found["watts"]} for name, row in runs if (found := row["energy"])}
    wall_clock = {name: row["ledger"] for name, row in runs if row["ledger"]}
    tables = [
        _startup({name: row["startup"] for name, row in runs if row["startup"]}),
        _by_run("wall clock: seconds from submission to the end, over restarts and requeues", wall_clock),
        _by_run("energy: joules from run_start to run_stop, and mean watts", energy),
    ]
    return [table for table in tables if table.rows]


def _startup(runs: dict[str, dict[str, Amounts]]) -> Detail:
    """Return a row a piece, because the runs of a group are nearly equal: their mean and their most."""
    first = [found["untimed_s"] | found["timed_s"] for found in runs.values()]
    slowest = [found["slowest_s"] for found in runs.values()]
    pieces = dict.fromkeys(piece for amounts in (*first, *slowest) for piece in amounts)
    rows = [[cell(piece), *_summary(first, piece), *_summary(slowest, piece)] for piece in pieces]
    caption = "start-up: seconds of each piece from launch to the end of the first step"
    if len(runs) < 2:
        return Detail(caption, ["piece", "rank 0", "slowest rank"], rows)
    header = ["piece", "rank 0: mean", "rank 0: most", "slowest rank: mean", "slowest rank: most"]
    return Detail(f"{caption}, in {len(runs)} runs", header, rows)


def _summary(runs: list[Amounts], piece: str) -> list[str]:
    """Return one run's amount, or the mean and the most of several runs'."""
    known = [amounts[piece] for amounts in runs if piece in amounts]
    if not known:
        return ["-"] * min(len(runs), 2)
    return [_amount(known[0])] if len(runs) == 1 else [_amount(mean(known)), _amount(max(known))]


def _by_run(caption: str, runs: dict[str, Amounts]) -> Detail:
    columns = list(dict.fromkeys(column for amounts in runs.values() for column in amounts))
    rows = [[name, *(_amount(of[each]) if each in of else "-" for each in columns)] for name, of in runs.items()]
    return Detail(caption, ["run", *map(cell, columns)], rows)


def _amount(amount: float) -> str:
    return f"{amount:z,.2f}"
