"""The official mlperf-logging tools for packages, run in this process: system descriptions and convergence points.

They tell what they found to the root logger, and the second writes beside the logs that it reads; so the logger is
listened to while they work, and the logs are lent to it in a folder of links.
"""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlperf_logging.benchmark_meta import get_result_file_counts
from mlperf_logging.system_desc_checker import system_desc_checker

OLDEST_RCP_RULESET = "1.0.0"


@dataclass(frozen=True)
class Convergence:
    """The official verdict on samples to converge, of which fewer than the reference's are better than is believed.

    `scaling` is what the time to train is multiplied by; `mean` is told only where it is below `reference_mean`.
    """

    passed: bool
    message: str
    scaling: float = 1.0
    mean: float | None = None
    least_mean: float | None = None
    reference_mean: float | None = None


def runs_per_result(benchmark: str) -> int:
    """Runs that make a result."""
    count: int = get_result_file_counts("training")[benchmark]
    return count


def description_problems(path: Path, ruleset: str) -> list[str]:
    """What the official checker finds wrong in a system description, which must be an object of texts."""
    with _listening() as records:
        valid, *_ = system_desc_checker.check_system_desc(str(path), "training", ruleset)
    return [] if valid else [record.getMessage().strip() for record in records if record.levelno >= logging.ERROR]


def convergence(logs: Sequence[Path], ruleset: str, by_train_samples: bool) -> Convergence:
    """Samples to converge of the runs of one closed result against the reference convergence points.

    They are the last evaluation's epoch_num or, where logs count epochs there, the value of train_samples.
    """
    from mlperf_logging.rcp_checker import rcp_checker  # noqa: PLC0415 - its scipy takes a second to load

    with tempfile.TemporaryDirectory() as folder, _listening() as records:
        for number, log in enumerate(logs):
            Path(folder, f"result_{number}.txt").symlink_to(log.resolve())
        try:
            passed, message, scaling = rcp_checker.check_directory(
                folder, "training", ruleset, verbose=False, bert_train_samples=by_train_samples,
                rcp_pass="pruned_rcps", set_scaling=True,
            )  # fmt: skip
        except Exception as error:  # it raises anything on logs it didn't expect  # noqa: BLE001
            return Convergence(False, f"the official checker failed on these logs: {error!r}")
    point = next((record.args for record in records if str(record.msg).strip().startswith("RCP Record")), None)
    if not isinstance(point, dict):
        return Convergence(passed, message)
    reference, least = float(point["RCP Mean"]), float(point["Min Epochs"])
    mean = reference / float(scaling) if scaling > 1 else None
    return Convergence(passed, message, float(scaling) if passed else 1.0, mean, least, reference)


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _listening() -> Iterator[list[logging.LogRecord]]:
    """What is told to the root logger goes into the list and nowhere else."""
    root, listener = logging.getLogger(), _Listener()
    handlers, level = root.handlers, root.level
    root.handlers = [listener]
    root.setLevel(logging.INFO)
    try:
        yield listener.records
    finally:
        root.handlers = handlers
        root.setLevel(level)
