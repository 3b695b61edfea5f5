"""Run mlperf-logging's official tools for packages in this process: system descriptions and convergence.

The tools report to the root logger, so we capture it while they run. They never see a file of the package, because they
open their input without checks. Besides, the convergence check takes time quadratic in the length of a line, finds its
keys anywhere in a line, and writes files next to the logs. So we write files for them, with only the values that they
need.
"""

import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

from mlperf_logging.benchmark_meta import get_result_file_counts
from mlperf_logging.system_desc_checker import system_desc_checker

from compliance.read.record import RECORD_TOKEN, shown
from compliance.read.run import RunFacts
from compliance.read.source import CannotJudge

_CONVERGENCE_FIELDS = {
    "submission_benchmark": "", "global_batch_size": "", "eval_accuracy": "epoch_num", "run_stop": "status",
}  # fmt: skip
"""The keys that the convergence check reads: the field of the metadata, or nothing if it reads the value."""
_LONGEST_VALUE = 400  # characters; the check takes time quadratic in the length of a line


@dataclass(frozen=True)
class Convergence:
    """The official verdict on samples to converge.

    The rules multiply the time to train by `scaling`; `mean` is set only if it is below `reference_mean`.
    """

    passed: bool
    message: str
    scaling: float = 1.0
    mean: float | None = None
    least_mean: float | None = None
    reference_mean: float | None = None


def runs_per_result(benchmark: str) -> int:
    """Return the number of runs in a result; for a benchmark that the official tools don't know, it is BERT's."""
    counts: dict[str, int] = get_result_file_counts("training")
    return counts.get(benchmark, counts["bert"])


def description_problems(content: dict[str, Any], ruleset: str) -> list[str]:
    """Return the faults that the official checker finds in a system description."""
    with _temporary_folder() as folder, _listening() as records:
        path = Path(folder, "system.json")
        path.write_text(json.dumps(content))
        try:
            is_valid = system_desc_checker.check_system_desc(str(path), "training", ruleset)[0]
        except (TypeError, ValueError) as error:  # the checker joins seven of the fields as text
            return [f"the official checker crashes on it: {error}"]
    if is_valid:
        return []
    return [record.getMessage().strip() for record in records if record.levelno >= logging.ERROR]


def convergence(runs: Sequence[RunFacts | None], ruleset: str) -> Convergence:
    """Judge the samples to converge of one result's runs against the ruleset's reference convergence points.

    A run's samples are the last epoch_num above a run_stop with status success. "Benchmark Specific Rules" lets BERT
    give them as train_samples instead; then the checker needs --rcp-bert-train-samples. A package doesn't record this
    option, so we judge as the checker does without it.
    """
    from mlperf_logging.rcp_checker import rcp_checker  # noqa: PLC0415 - its scipy takes a second to load

    with _temporary_folder() as folder, _listening() as records:
        for number, run in enumerate(runs):
            Path(folder, f"result_{number}.txt").write_text(_bare_log(run))
        try:
            passed, message, scaling = rcp_checker.check_directory(
                folder, "training", ruleset, verbose=False, bert_train_samples=False, rcp_pass="pruned_rcps",
                set_scaling=True,
            )  # fmt: skip
        except Exception as error:  # the checker may raise anything on unexpected runs  # noqa: BLE001
            return Convergence(False, f"the official checker crashes on these logs: {error!r}")
    point = next((record.args for record in records if str(record.msg).strip().startswith("RCP Record")), None)
    if not isinstance(point, dict):
        return Convergence(passed, message)
    reference_mean = float(point["RCP Mean"])
    return Convergence(
        passed,
        message,
        scaling=float(scaling) if passed else 1.0,
        mean=reference_mean / float(scaling) if scaling > 1 else None,
        least_mean=float(point["Min Epochs"]),
        reference_mean=reference_mean,
    )


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """Make a folder for the files that a tool reads. Raises CannotJudge where no such folder can be written."""
    try:
        folder = tempfile.TemporaryDirectory()
    except OSError as error:
        raise CannotJudge(f"{error.strerror}; set TMPDIR to a folder that can be written") from error
    with folder as name:
        yield name


def _bare_log(run: RunFacts | None) -> str:
    """Return a log with only the records and values that the convergence check needs; it is empty if there are none."""
    events = [] if run is None else [event for event in run.events() if event.key in _CONVERGENCE_FIELDS]
    lines = []
    for event in events:
        field = _CONVERGENCE_FIELDS[event.key]
        metadata = {field: _short(event.metadata[field])} if field in event.metadata else {}
        value = None if field else _short(event.value)
        lines.append(json.dumps({"key": event.key, "value": value, "metadata": metadata}))
    return "".join(f"{RECORD_TOKEN}{line}\n" for line in lines)


def _short(value: Any) -> Any:
    """Return a value as the log has it, or a short text of it, on which the checker fails just as it does on it."""
    return value if len(json.dumps(value)) <= _LONGEST_VALUE else shown(value)


@contextmanager
def _listening() -> Iterator[list[logging.LogRecord]]:
    """Capture the root logger's records in a list instead of printing them."""
    root = logging.getLogger()
    handlers = root.handlers
    level = root.level
    listener = BufferingHandler(sys.maxsize)
    root.handlers = [listener]
    root.setLevel(logging.INFO)
    try:
        yield listener.buffer
    finally:
        root.handlers = handlers
        root.setLevel(level)
