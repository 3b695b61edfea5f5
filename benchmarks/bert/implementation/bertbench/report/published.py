"""Read published MLPerf Training results of BERT, rounds 1.1 to 5.0, to show beside the user's runs.

published_bert.csv was computed from the result logs in the public repositories mlcommons/training_results_v1.1 to
training_results_v5.0: a row a result; times in minutes (mean without the fastest and the slowest run), samples to
converge as a mean, rounds joined by ; if one system was submitted to several.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bertbench.report import page
from bertbench.report.charts import Axis, Bar, bars

MLPERF_TARGET = 0.720  # masked-LM accuracy, since round 1.0
_MOST_BARS = 15
TABLE = Path(__file__).with_name("published_bert.csv")
_HYPER_PARAMETERS = ("learning_rate", "beta1", "beta2", "training_steps", "warmup_steps", "start_warmup_step")


@dataclass(frozen=True)
class Published:
    """One published result: a system's mean. Values missing from its logs are None."""

    rounds: str
    submitter: str
    system: str
    division: str
    accelerator: str
    accelerators: int | None
    nodes: int
    seconds: float
    """Time to train, as measured."""
    minutes: float
    """The published score: time to train, scaled by the reference convergence points if they require it."""
    samples_to_converge: float
    global_batch_size: int
    hyper_parameters: tuple[float, ...]
    """Learning rate, both betas, training steps, warm-up steps, start of warm-up; empty if they weren't logged."""


@cache
def published() -> tuple[Published, ...]:
    """Return all of them, in the file's order."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(map(_result, csv.DictReader(file)))


def _result(row: dict[str, str]) -> Published:
    logged = [row[name] for name in _HYPER_PARAMETERS]
    return Published(
        rounds=row["rounds"],
        submitter=row["submitter"],
        system=row["system"],
        division=row["division"],
        accelerator=row["accelerator"],
        accelerators=int(row["accelerators"]) if row["accelerators"] else None,
        nodes=int(float(row["nodes"])),
        seconds=60 * float(row["time_to_train_min"]),
        minutes=float(row["rcp_scaled_min"] or row["time_to_train_min"]),
        samples_to_converge=float(row["samples_to_converge"]),
        global_batch_size=int(row["global_batch_size"]),
        hyper_parameters=tuple(map(float, logged)) if all(logged) else (),
    )


def beside(name: str, accelerators: int | None, minutes: float | None) -> str:
    """Return, as HTML, published results with a system's number of accelerators, and its own time among them.

    `minutes` is None if the system's time can't be compared, because its runs ended below MLPerf's target.
    """
    if accelerators is None:
        return page.paragraph("No system description gives the number of accelerators to compare with.", "soft")
    by_time = sorted(published(), key=lambda result: result.minutes)
    same = [result for result in by_time if result.accelerators == accelerators]
    machines = f"{accelerators} accelerators" if accelerators else "no accelerator, CPUs only"
    if not same:
        known = ", ".join(str(count) for count in sorted({r.accelerators for r in published() if r.accelerators}))
        return page.paragraph(f"No published result has {machines}; there are results with {known}.", "soft")
    rows = [(result.minutes, _bar(result)) for result in _fastest_of_each_kind(same)[:_MOST_BARS]]
    if minutes is None:
        note = (
            f"Runs here end below MLPerf's target accuracy of {MLPERF_TARGET}, so their time isn't drawn beside these."
        )
    else:
        note = "Times are comparable if model, data and target are MLPerf's."
        rows.append((minutes, Bar(f"{name} (here)", _part("here", minutes), f"{minutes:.2f}", strong=True)))
    rows.sort(key=lambda row: row[0])
    title = f"Published MLPerf results with {machines}: the fastest of each kind"
    header = ("submitter", "system", "rounds", "division", "accelerator", "nodes", "minutes", "samples", "batch size")
    cells = [
        (r.submitter, r.system, r.rounds.replace(";", ", "), r.division, r.accelerator, str(r.nodes),
         f"{r.minutes:.2f}", f"{r.samples_to_converge:,.0f}", str(r.global_batch_size))
        for r in same
    ]  # fmt: skip
    source = "Source: result logs in mlcommons/training_results_v1.1 to v5.0"
    return (
        page.panels(bars(title, [bar for _, bar in rows], Axis("minutes to train")))
        + page.paragraph(note, "soft")
        + page.folded(f"All {len(same)} published results with {machines}", page.table(header, cells, source))
    )


def _fastest_of_each_kind(results: list[Published]) -> list[Published]:
    best: dict[tuple[str, str], Published] = {}
    for result in results:
        best.setdefault((result.accelerator, result.division), result)
    return list(best.values())


def _bar(result: Published) -> Bar:
    machine = result.accelerator.removeprefix("NVIDIA ") if result.accelerators else f"{result.nodes} nodes"
    label = f"{machine}, {result.submitter} {result.rounds.split(';')[-1]}"
    return Bar(label, _part(f"published, {result.division}", result.minutes), f"{result.minutes:.2f}")


def _part(kind: str, minutes: float) -> dict[str, float]:
    """Return all kinds in one order, so that each has the same colour on every page."""
    return {"published, closed": 0.0, "published, open": 0.0, "here": 0.0, kind: minutes}
