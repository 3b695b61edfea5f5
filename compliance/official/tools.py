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

from compliance.read.record import RECORD_TOKEN, plain
from compliance.read.run import Converged
from compliance.read.source import CannotJudge


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


def convergence(runs: Sequence[Converged], ruleset: str) -> Convergence:
    """Judge the samples to converge of one result's runs against the ruleset's reference convergence points."""
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


def _bare_log(run: Converged) -> str:
    """Return a log with only the records that the convergence check needs."""
    status = "aborted" if run.samples is None else "success"
    records: list[tuple[str, Any, dict[str, Any]]] = [
        ("submission_benchmark", "bert", {}),
        ("eval_accuracy", None, {"epoch_num": plain(run.samples or 0)}),
        ("run_stop", None, {"status": status}),
    ]
    if run.global_batch_size is not None:
        records.insert(0, ("global_batch_size", plain(run.global_batch_size), {}))
    lines = (json.dumps({"key": key, "value": value, "metadata": metadata}) for key, value, metadata in records)
    return "".join(f"{RECORD_TOKEN}{line}\n" for line in lines)


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
