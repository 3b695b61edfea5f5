"""`python -m compliance diff A B`: list the differences between two runs, or between two systems' results.

Exit code as diff's: 0 no differences, 1 differences, 2 cannot compare.
"""

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from compliance import description
from compliance.judge import find_logs
from compliance.log import CannotJudge, read_events
from compliance.record import as_json, distinct, printable, shown
from compliance.run import RunFacts, number
from compliance.score import olympic_mean

# Keys of a run's events and measurements, not of its setup.
_COURSE = frozenset(
    (
        "cache_clear", "init_start", "init_stop", "run_start", "run_stop", "block_start", "block_stop", "epoch_start",
        "epoch_stop", "eval_start", "eval_stop", "eval_accuracy", "seed", "weights_initialization", "tracked_stats",
        "throughput", "data_file",
    )
)  # fmt: skip
_SUBMISSION = "submission_"
_SECTIONS = ("submission", "hyper-parameters", "cadence", "result", "system")


class Difference(NamedTuple):
    """One difference; None if a side doesn't have the value."""

    section: str
    name: str
    a: Any
    b: Any


def main(arguments: list[str]) -> int:
    """Print the differences between the two paths; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compliance diff", description=__doc__.splitlines()[0])
    parser.add_argument("a", type=Path, metavar="A", help="a log, or a folder with one system's result_*.txt")
    parser.add_argument("b", type=Path, metavar="B", help="another")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        found = differences(options.a, options.b)
    except CannotJudge as problem:
        print(printable(str(problem)), file=sys.stderr)
        return 2
    if options.json:
        content = {"a": str(options.a), "b": str(options.b), "differences": [one._asdict() for one in found]}
        print(as_json(content))
    else:
        print(_table(options.a, options.b, found))
    return 1 if found else 0


def differences(a: Path, b: Path) -> list[Difference]:
    """Return the differences between the results at two paths, by section. Raises CannotJudge."""
    one, other = _contents(a), _contents(b)
    return [
        Difference(section, name, one[section].get(name), other[section].get(name))
        for section in _SECTIONS
        for name in [*one[section], *(name for name in other[section] if name not in one[section])]
        if len(distinct((one[section].get(name), other[section].get(name)))) > 1
    ]


def _contents(path: Path) -> dict[str, dict[str, Any]]:
    """Return what the logs at a path say, by section and name; a list if its runs differ."""
    logs = find_logs(path)
    runs = [RunFacts(read_events(log)) for log in logs]
    keys = dict.fromkeys(key for run in runs for key in sorted(run.keys()) if key not in _COURSE)
    values = {key: _common([run.value(key) for run in runs]) for key in keys}
    measured = ("train_samples",)
    return {
        "submission": {key: value for key, value in values.items() if key.startswith(_SUBMISSION)},
        "hyper-parameters": {
            key: value for key, value in values.items() if not key.startswith(_SUBMISSION) and key not in measured
        },
        "cadence": _cadence(runs),
        "result": _result(runs),
        "system": description.of_log(logs[0]),
    }


def _common(values: list[Any]) -> Any:
    different = distinct(values)
    return different[0] if len(different) == 1 else different


def _cadence(runs: list[RunFacts]) -> dict[str, Any]:
    counted = [[one.samples for one in run.evaluations if one.samples is not None] for run in runs]
    gaps = [b - a for samples in counted for a, b in pairwise(samples)]
    return {
        "first evaluation after": _over(min, [samples[0] for samples in counted if samples]),
        "between evaluations (median)": _over(median, gaps),
        "eval_samples": _common([run.value("eval_samples") for run in runs]),
    }


def _result(runs: list[RunFacts]) -> dict[str, Any]:
    reached = [run for run in runs if run.status == "success"]
    times = [run.time_to_train_s for run in reached if run.time_to_train_s is not None]
    return {
        "runs": len(runs),
        "runs with success": len(reached),
        "time to train s": _over(olympic_mean, times),
        "samples to converge": _over(mean, [run.samples for run in reached if run.samples is not None]),
        "samples/s": _over(mean, [run.samples_per_s for run in reached if run.samples_per_s is not None]),
        "best accuracy": _over(max, [run.best_accuracy for run in runs if run.best_accuracy is not None]),
        "start-up s": _over(mean, [run.startup_s for run in runs if run.startup_s is not None]),
        "evaluation s": _over(mean, [run.evaluation_s for run in runs]),
    }


def _over(statistic: Callable[[list[float]], float], values: list[float]) -> float | None:
    return statistic(values) if values else None


def _table(a: Path, b: Path, found: list[Difference]) -> str:
    if not found:
        return printable(f"{a} and {b}: no differences")
    lines = []
    for section in dict.fromkeys(one.section for one in found):
        rows = [(one.name, _cell(one.a), _cell(one.b)) for one in found if one.section == section]
        widths = [max(len(row[column]) for row in [*rows, (section, str(a), "")]) for column in (0, 1)]
        head = (section, str(a), str(b))
        lines += ["  ".join((row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2])) for row in [head, *rows]]
        lines.append("")
    return "\n".join(map(printable, lines[:-1]))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and number(value) is not None:
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return value if isinstance(value, str) and value.isprintable() else shown(value)
