"""Tabulate what a group's runs spent: seconds of start-up, wall clock over restarts, joules."""

from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.log_spans import TIMED, UNTIMED
from bertbench.common.timeline import BUCKETS
from bertbench.report.markup import cell

Recorded = list[tuple[str, dict[str, Any]]]
"""Runs that recorded a detail: name and detail."""


class Detail(NamedTuple):
    """A table of a group's runs."""

    caption: str
    header: list[str]
    rows: list[list[str]]


def details(content: dict[str, Any]) -> list[Detail]:
    """Return the details that some run of an object of `runs.summarized` has recorded."""
    makers = {"startup": _startup, "ledger": _wall_clock, "energy": _energy}
    recorded = {key: [(cell(Path(row["log"]).stem), row[key]) for row in content["runs"] if row[key]] for key in makers}
    return [make(recorded[key]) for key, make in makers.items() if recorded[key]]


def _startup(runs: Recorded) -> Detail:
    """Return the pieces of start-up: two rows per run, for rank 0 and for the slowest rank of each piece."""
    rows = [
        [label, *_seconds(seconds, UNTIMED), "|", *_seconds(seconds, TIMED)]
        for name, pieces in runs
        for label, seconds in (
            (name, pieces["untimed_s"] | pieces["timed_s"]),
            ("slowest rank", pieces["slowest_s"]),
        )
    ]
    caption = "start-up: seconds from launch to run_start | from there to the end of the first step"
    return Detail(caption, ["run", *UNTIMED, "|", *TIMED], rows)


def _seconds(found: dict[str, float], pieces: tuple[str, ...]) -> list[str]:
    return [f"{found[piece]:z.2f}" if piece in found else "-" for piece in pieces]


def _wall_clock(runs: Recorded) -> Detail:
    rows = []
    for name, ledger in runs:
        *seconds, goodput = ledger.values()
        rows.append([name, *(f"{value:.1f}" for value in seconds), f"{goodput:.1%}"])
    caption = "wall clock: seconds from submission to the end, over restarts and requeues"
    return Detail(caption, ["run", "wall", *BUCKETS, "goodput"], rows)


def _energy(runs: Recorded) -> Detail:
    nodes = list(dict.fromkeys(node for _, energy in runs for node in energy["watts"]))
    rows = [
        [
            name,
            f"{energy['joules']:,.0f}",
            *(f"{energy['watts'][node]:,.1f}" if node in energy["watts"] else "-" for node in nodes),
            cell(", ".join(energy["meters"])),
        ]
        for name, energy in runs
    ]
    caption = "energy: joules from run_start to run_stop, and mean watts"
    return Detail(caption, ["run", "joules", *map(cell, nodes), "meters"], rows)
