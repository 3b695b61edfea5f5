"""Tabulate what a group's runs spent: seconds of start-up, wall clock over restarts, joules."""

from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bertbench.common.log_spans import TIMED, UNTIMED
from bertbench.common.timeline import BUCKETS
from bertbench.report.charts import Bar
from bertbench.report.markup import cell

Recorded = list[tuple[str, dict[str, Any], dict[str, Any]]]
"""Runs that recorded a detail: name, the detail, and its row of `runs.summarized`."""


class Detail(NamedTuple):
    """A table of a group's runs, with its bar charts for the page: title, axis, rows."""

    title: str
    caption: str
    header: list[str]
    rows: list[list[str]]
    charts: list[tuple[str, str, list[Bar]]]
    conclusion: str = ""


def details(content: dict[str, Any]) -> list[Detail]:
    """Return the details that some run of an object of `runs.summarized` has recorded."""
    makers = {"startup": _startup, "ledger": _wall_clock, "energy": _energy}
    recorded = {
        key: [(cell(Path(row["log"]).stem), row[key], row) for row in content["runs"] if row[key]] for key in makers
    }
    return [make(recorded[key]) for key, make in makers.items() if recorded[key]]


def _startup(runs: Recorded) -> Detail:
    """Return the pieces of start-up: two rows per run, for rank 0 and for the slowest rank of each piece."""
    rows = [
        [label, *_seconds(seconds, UNTIMED), "|", *_seconds(seconds, TIMED)]
        for name, pieces, _ in runs
        for label, seconds in (
            (name, pieces["untimed_s"] | pieces["timed_s"]),
            ("slowest rank", pieces["slowest_s"]),
        )
    ]
    charts = [
        (title, "seconds, rank 0", [Bar(name, p[part], f"{sum(p[part].values()):.2f}") for name, p, _ in runs])
        for title, part in (
            ("Off the clock: launch to run_start", "untimed_s"),
            ("On the clock: run_start to the end of the first step", "timed_s"),
        )
    ]
    found = [row for *_, row in runs]
    untimed = mean(sum(pieces["untimed_s"].values()) for _, pieces, _ in runs)
    shares = [row["startup_s"] / row["time_to_train_s"] for row in found if row["time_to_train_s"]]
    initialised = [row["initialisation_s"] for row in found if row["initialisation_s"] is not None]
    conclusion = (
        f"launch to run_start takes {untimed:.1f} s on average; {mean(row['startup_s'] for row in found):.3f} s on "
        "the clock before the first step"
        + (f", {mean(shares):.1%} of the run" if shares else "")
        + (f"; initialisation took {max(initialised) / 60:.1f} min at most" if initialised else "")
    )
    caption = "start-up: seconds from launch to run_start | on the clock"
    return Detail("Start-up", caption, ["run", *UNTIMED, "|", *TIMED], rows, charts, conclusion)


def _seconds(found: dict[str, float], pieces: tuple[str, ...]) -> list[str]:
    return [f"{found[piece]:z.2f}" if piece in found else "-" for piece in pieces]


def _wall_clock(runs: Recorded) -> Detail:
    rows, bars = [], []
    for name, ledger, _ in runs:
        wall, *seconds, goodput = ledger.values()
        rows.append([name, *(f"{value:.1f}" for value in (wall, *seconds)), f"{goodput:.1%}"])
        spent = {bucket: value for bucket, value in zip(BUCKETS, seconds, strict=True) if value}
        bars.append(Bar(name, spent, f"goodput {goodput:.1%}"))
    charts = [("Wall clock, from submission to the end", "seconds", bars)]
    caption = "wall clock: seconds from submission to the end, over restarts and requeues"
    return Detail("Goodput", caption, ["run", "wall", *BUCKETS, "goodput"], rows, charts)


def _energy(runs: Recorded) -> Detail:
    nodes = list(dict.fromkeys(node for _, energy, _ in runs for node in energy["watts"]))
    rows = [
        [
            name,
            f"{energy['joules']:,.0f}",
            *(f"{energy['watts'][node]:,.1f}" if node in energy["watts"] else "-" for node in nodes),
            cell(", ".join(energy["meters"])),
        ]
        for name, energy, _ in runs
    ]
    bars = [Bar(name, energy["watts"], f"{energy['joules']:,.0f} J") for name, energy, _ in runs]
    caption = "energy: joules from run_start to run_stop, and mean watts"
    header = ["run", "joules", *map(cell, nodes), "meters"]
    return Detail("Energy", caption, header, rows, [("Mean power by node", "watts", bars)])
