"""Tabulate runs: time to train per run, the mean that counts, samples to converge, speed and balance.

A table holds the runs of one system with the same settings (settings.py).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.common.log_spans import evaluation_s, startup, startup_s
from bertbench.common.timeline import TRAINING
from bertbench.report.beside import curve
from bertbench.report.details import details
from bertbench.report.energy import energy
from bertbench.report.ledger import ledger
from bertbench.report.markup import aligned, cell
from bertbench.report.settings import Group, Runs, divided, title
from bertbench.report.straggler import Straggler, straggler_of
from compliance.read.find import find_logs
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts
from compliance.read.score import counted, olympic_mean


def systems(paths: Sequence[Path]) -> list[Group]:
    """Group runs by system and settings, in the order of the logs; an unreadable log has no facts.

    A system is a folder, named by its first platform; if folders share a platform, the folder is named too.
    Raises CannotJudge if there is no log, or none can be read.
    """
    folders: dict[Path, Runs] = defaultdict(list)
    problems: list[CannotJudge] = []
    logs = [log for path in paths for log in find_logs(path)]
    for log in logs:
        try:
            facts = RunFacts(read_events(log))
        except CannotJudge as problem:
            problems.append(problem)
            facts = RunFacts([])
        folders[log.parent].append((log, facts))
    if len(problems) == len(logs):
        raise problems[0]
    names = {
        folder: next((facts.platform for _, facts in runs if facts.platform), folder.parent.name)
        for folder, runs in folders.items()
    }
    of_name = Counter(names.values())
    return [
        group
        for folder, runs in folders.items()
        for group in divided(names[folder] if of_name[names[folder]] == 1 else f"{names[folder]}, {folder}", runs)
    ]


def summarized(group: Group) -> dict[str, Any]:
    """Return the object of a group in `report --json`."""
    rows = [_row(log, facts) for log, facts in group.runs]
    results = [row for row in rows if row["not_a_result"] is None]
    times = [row["time_to_train_s"] if row["status"] == "success" else None for row in results]
    for row, counts in zip(results, counted(times), strict=True):
        row["counted"] = counts
    reached = [row for row, time in zip(results, times, strict=True) if time is not None]
    return {
        "system": group.name,
        "settings": group.settings,
        "runs": rows,
        "reached": len(reached),
        "mean_time_to_train_s": olympic_mean(times) if reached else None,
        "mean_samples_to_converge": mean([row["samples"] or 0 for row in reached]) if reached else None,
    }


def _row(log: Path, facts: RunFacts) -> dict[str, Any]:
    total, begun_s, pieces = facts.time_to_train_s, startup_s(facts), startup(facts)
    steps = None if total is None or begun_s is None else total - begun_s - evaluation_s(facts)
    efficiency = [value for _, value in curve(log, "load_efficiency")]
    return {
        "log": str(log),
        "status": facts.status,
        "not_a_result": facts.not_a_result,
        "counted": False,
        "seed": facts.seed,
        "time_to_train_s": total,
        "samples": facts.samples,
        "samples_per_s": facts.samples_per_s,
        "best_accuracy": facts.best_accuracy,
        "evaluations": len(facts.evaluations),
        "startup_s": begun_s,
        "steps_s": steps,
        "evaluation_s": evaluation_s(facts),
        "startup": pieces,
        "ledger": _ledger(log),
        "energy": energy(log, facts),
        "load_efficiency": mean(efficiency) if efficiency else None,
        "straggler": None if facts.not_a_result or not (slow := straggler_of(log)) else slow._asdict(),
    }


def _ledger(log: Path) -> dict[str, float] | None:
    seconds = ledger(log)
    if seconds is None:
        return None
    wall = sum(seconds.values())
    buckets = {f"{bucket.replace('-', '').replace(' ', '_')}_s": time for bucket, time in seconds.items()}
    return {"wall_s": wall, **buckets, "goodput": seconds[TRAINING] / wall if wall else 0.0}


COLUMNS = {
    "run": ("run", "{}"),
    "system": ("system", "{}"),
    "seed": ("seed", "{}"),
    "status": ("status", "{}"),
    "time_to_train_s": ("time s", "{:.1f}"),
    "samples": ("samples", "{:,.0f}"),
    "best_accuracy": ("accuracy", "{:.4f}"),
    "samples_per_s": ("samples/s", "{:,.1f}"),
    "evaluations": ("evals", "{}"),
    "startup_s": ("start-up s", "{:.2f}"),
    "steps_s": ("steps s", "{:.1f}"),
    "evaluation_s": ("eval s", "{:.1f}"),
    "commit": ("commit", "{:.7}"),
    "verdict": ("verdict", "{}"),
}
"""Heading and form of each value of a run that a table shows."""
_REPORTED = (
    "time_to_train_s", "samples", "samples_per_s", "best_accuracy", "evaluations", "startup_s", "steps_s",
    "evaluation_s",
)  # fmt: skip


def cells(row: dict[str, Any], columns: Sequence[str]) -> list[str]:
    """Return these values of a run as text."""
    return ["-" if row[key] is None else cell(COLUMNS[key][1].format(row[key])) for key in columns]


def text_rows(content: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row per run, for an object of `summarized`."""
    header = ["run", *(COLUMNS[key][0] for key in _REPORTED), "status"]
    rows = [
        [
            cell(Path(row["log"]).stem),
            *cells(row, _REPORTED),
            "no result" if row["not_a_result"] else cell(str(row["status"] or "unfinished")) + _dropped(row),
        ]
        for row in content["runs"]
    ]
    return header, rows


def _dropped(row: dict[str, Any]) -> str:
    """Return a remark for a run that reached the target, but doesn't count in the mean."""
    return " (dropped)" if row["status"] == "success" and not row["counted"] else ""


def conclusion(content: dict[str, Any]) -> str:
    """Return a sentence on the runs of an object of `summarized`."""
    runs, reached = sum(row["not_a_result"] is None for row in content["runs"]), content["reached"]
    outcome = f"{reached} of {runs} runs reached the target"
    if not reached:
        return outcome
    counting = sum(row["counted"] for row in content["runs"])
    rule = "fastest and slowest dropped" if counting < reached else "too few runs to drop any"
    return (
        f"{outcome}; mean time to train {content['mean_time_to_train_s']:.1f} s ({rule}); mean samples to converge "
        f"{content['mean_samples_to_converge']:,.0f}"
    )


def remarks(content: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence each on the convergence, the speed and the balance of a group, as far as they are known."""
    yield conclusion(content)
    results = [row for row in content["runs"] if row["not_a_result"] is None]
    timed = [row for row in results if row["time_to_train_s"] and row["samples_per_s"] and row["steps_s"] is not None]
    if timed:
        total = sum(row["time_to_train_s"] for row in timed)
        parts = (("training", "steps_s"), ("evaluation", "evaluation_s"), ("start-up", "startup_s"))
        shares = ", ".join(f"{sum(row[key] for row in timed) / total:.1%} {name}" for name, key in parts)
        yield f"speed: {mean(row['samples_per_s'] for row in timed):,.0f} samples/s; of the time on the clock {shares}"
    if efficiencies := [row["load_efficiency"] for row in results if row["load_efficiency"] is not None]:
        yield f"balance: load efficiency {mean(efficiencies):.1%} (mean over slowest rank)"
    for row in results:
        if row["straggler"]:
            yield f"straggler: {cell(Path(row['log']).stem)}: {Straggler(**row['straggler']).text()}"


def text(content: dict[str, Any], detailed: bool) -> str:
    """Return the output of `report` for an object of `summarized`; `detailed` adds a table for each detail."""
    lines = [title(content["system"], content["settings"]), *aligned(*text_rows(content)), *remarks(content)]
    for found in details(content) if detailed else ():
        lines += [found.caption, *aligned(found.header, found.rows)]
    return "\n".join(lines)
