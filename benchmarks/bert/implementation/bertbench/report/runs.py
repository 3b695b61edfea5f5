"""Tabulate runs: time to train per run, the mean that counts, samples to converge, and where the time went.

A table holds the runs of one system with the same settings (settings.py).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.common.log_spans import KEY, TIMED, UNTIMED, evaluation_s, init_s, startup, startup_s
from bertbench.common.timeline import BUCKETS, TRAINING
from bertbench.report.energy import energy
from bertbench.report.ledger import ledger
from bertbench.report.settings import LOGGED, RESUMED, Group, Runs, divided, title
from bertbench.report.straggler import Straggler, straggler_of
from compliance.judge import find_logs
from compliance.log import CannotJudge, read_events
from compliance.record import printable
from compliance.run import RunFacts
from compliance.score import counted, olympic_mean

# The facts that a report shows of a run, few enough that many large logs fit into memory.
_SHOWN_KEYS = frozenset(
    (
        "submission_benchmark", "submission_platform", "seed", "init_start", "init_stop", "run_start", "run_stop",
        "block_start", "epoch_start", "eval_start", "eval_stop", "eval_accuracy", "not_a_result", RESUMED, KEY, *LOGGED,
    )
)  # fmt: skip
_MOST_EVENTS = 1_000


def systems(paths: Sequence[Path]) -> list[Group]:
    """Group runs by system and settings, in the order of the logs; an unreadable log has no facts.

    A system is a folder's logs of one submission_platform; if folders share a platform, the folder is named too.
    Raises CannotJudge if there is no log, or none can be read.
    """
    found: Runs = []
    problems: list[CannotJudge] = []
    for log in (log for path in paths for log in find_logs(path)):
        try:
            found.append((log, RunFacts(read_events(log)).only(_SHOWN_KEYS, _MOST_EVENTS)))
        except CannotJudge as problem:
            problems.append(problem)
            found.append((log, RunFacts([])))
    if len(problems) == len(found):
        raise problems[0]
    platforms = {log.parent: facts.platform for log, facts in reversed(found) if facts.platform}
    groups: dict[tuple[Path, str], Runs] = defaultdict(list)
    for log, facts in found:
        name = facts.platform or platforms.get(log.parent) or log.parent.parent.name
        groups[log.parent, name].append((log, facts))
    folders = Counter(name for _, name in groups)
    return [
        group
        for (folder, name), runs in groups.items()
        for group in divided(name if folders[name] == 1 else f"{name}, {folder}", runs)
    ]


def summary(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Return one object for each group of runs."""
    return [summarized(group) for group in found]


def table(contents: Sequence[dict[str, Any]]) -> str:
    """Return the output of `report` for a `summary`: a table for each object."""
    return "\n\n".join(map(_table, contents))


def summarized(group: Group) -> dict[str, Any]:
    """Return one object of `summary`."""
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
        "initialisation_s": init_s(facts),
        "startup": pieces and pieces._asdict(),
        "ledger": _ledger(log),
        "energy": energy(log, facts),
        "straggler": None if facts.not_a_result or not (slow := straggler_of(log)) else slow._asdict(),
    }


def _ledger(log: Path) -> dict[str, float] | None:
    seconds = ledger(log)
    if seconds is None:
        return None
    wall = sum(seconds.values())
    buckets = {f"{bucket.replace('-', '').replace(' ', '_')}_s": time for bucket, time in seconds.items()}
    return {"wall_s": wall, **buckets, "goodput": seconds[TRAINING] / wall if wall else 0.0}


_COLUMNS = (
    ("time_to_train_s", "time s", "{:.1f}"),
    ("samples", "samples", "{:,.0f}"),
    ("samples_per_s", "samples/s", "{:,.1f}"),
    ("best_accuracy", "accuracy", "{:.4f}"),
    ("evaluations", "evals", "{}"),
    ("startup_s", "start-up s", "{:.2f}"),
    ("steps_s", "steps s", "{:.1f}"),
    ("evaluation_s", "eval s", "{:.1f}"),
)


_WIDEST_CELL = 40


def text_rows(content: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row per run, for an object of `summary`."""
    header = ["run", *(title for _, title, _ in _COLUMNS), "status"]
    rows = [
        [
            cell(Path(row["log"]).stem),
            *("-" if row[key] is None else cell(form.format(row[key])) for key, _, form in _COLUMNS),
            "no result" if row["not_a_result"] else cell(str(row["status"] or "unfinished")),
        ]
        for row in content["runs"]
    ]
    return header, rows


def cell(text: str) -> str:
    """Return a log's text for a table, with terminal control characters escaped, cut to fit."""
    shown = printable(text)
    return shown if len(shown) <= _WIDEST_CELL else f"{shown[: _WIDEST_CELL - 3]}..."


def conclusion(content: dict[str, Any]) -> str:
    """Return a sentence on the runs of an object of `summary`."""
    runs, reached = sum(row["not_a_result"] is None for row in content["runs"]), content["reached"]
    if not reached:
        return f"{reached} of {runs} runs reached the target"
    counting = sum(row["counted"] for row in content["runs"])
    rule = "fastest and slowest dropped" if counting < reached else "too few runs to drop any"
    return (
        f"{reached} of {runs} runs reached the target; mean time to train {content['mean_time_to_train_s']:.1f} s "
        f"({rule}); mean samples to converge {content['mean_samples_to_converge']:,.0f}"
    )


def _table(content: dict[str, Any]) -> str:
    lines = [title(content["system"], content["settings"]), *aligned(*text_rows(content)), conclusion(content)]
    header, rows = startup_rows(content)
    if rows:
        lines += ["start-up: seconds from launch to run_start | on the clock", *aligned(header, rows)]
        lines.append(startup_conclusion(content))
    for heading, (header, rows) in ((LEDGER_TITLE, ledger_rows(content)), (ENERGY_TITLE, energy_rows(content))):
        if rows:
            lines += [heading, *aligned(header, rows)]
    for row in content["runs"]:
        if row["straggler"]:
            lines.append(f"straggler: {cell(Path(row['log']).stem)}: {Straggler(**row['straggler']).text()}")
    return "\n".join(lines)


def startup_rows(content: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and two rows per run, for rank 0 and the slowest rank, with seconds of each piece."""
    measured = [(cell(Path(row["log"]).stem), row["startup"]) for row in content["runs"] if row["startup"]]
    rows = []
    for name, pieces in measured:
        of_rank = pieces["untimed_s"] | pieces["timed_s"]
        for label, seconds in ((name, of_rank), ("slowest rank", pieces["slowest_s"])):
            cells = [[f"{seconds[p]:z.2f}" if p in seconds else "-" for p in part] for part in (UNTIMED, TIMED)]
            rows.append([label, *cells[0], "|", *cells[1]])
    return ["run", *UNTIMED, "|", *TIMED], rows


LEDGER_TITLE = "wall clock: seconds from submission to the end, over restarts and requeues"


def ledger_rows(content: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row for each run with a timeline: the division of its wall clock."""
    rows = []
    for row in content["runs"]:
        if row["ledger"]:
            wall, *seconds, goodput = row["ledger"].values()
            cells = [f"{value:.1f}" for value in (wall, *seconds)]
            rows.append([cell(Path(row["log"]).stem), *cells, f"{goodput:.1%}"])
    return ["run", "wall", *BUCKETS, "goodput"], rows


ENERGY_TITLE = "energy: joules from run_start to run_stop, and mean watts"


def energy_rows(content: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row for each run with sampled power: joules, and watts by node."""
    measured = [(cell(Path(row["log"]).stem), row["energy"]) for row in content["runs"] if row["energy"]]
    nodes = list(dict.fromkeys(node for _, energy in measured for node in energy["watts"]))
    rows = [
        [
            name,
            f"{energy['joules']:,.0f}",
            *(f"{energy['watts'][node]:,.1f}" if node in energy["watts"] else "-" for node in nodes),
            cell(", ".join(energy["meters"])),
        ]
        for name, energy in measured
    ]
    return ["run", "joules", *(cell(node) for node in nodes), "meters"], rows


def startup_conclusion(content: dict[str, Any]) -> str:
    """Return the cost of start-up in the runs of an object of `summary` that log its pieces."""
    measured = [row for row in content["runs"] if row["startup"]]
    untimed = mean(sum(row["startup"]["untimed_s"].values()) for row in measured)
    shares = [row["startup_s"] / row["time_to_train_s"] for row in measured if row["time_to_train_s"]]
    initialised = [row["initialisation_s"] for row in measured if row["initialisation_s"] is not None]
    on_clock = f"{mean(row['startup_s'] for row in measured):.3f} s on the clock before the first step"
    share = f", {mean(shares):.1%} of the run" if shares else ""
    within = f"; initialisation took {max(initialised) / 60:.1f} min at most" if initialised else ""
    return f"launch to run_start takes {untimed:.1f} s on average; {on_clock}{share}{within}"


def aligned(header: list[str], rows: list[list[str]], left: int = 0) -> list[str]:
    """Return the lines of a table for a terminal, with the first `left` columns left-aligned, the others right."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    return [
        "  ".join(
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *rows]
    ]
