"""Open the log, the metrics and the clock, with which every run of pre-training or fine-tuning begins."""

from collections.abc import Iterator
from contextlib import contextmanager

from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.metrics import Metrics
from bertbench.runs.mlperf_log import Clock, MlperfLog
from bertbench.runs.trace import Trace


@contextmanager
def open_run(
    system: System,
    world: World,
    files: ResultFiles | None,
    startup: Startup,
    resumed: bool = False,
    not_a_result: str | None = None,
    report_steps: int = 1,
) -> Iterator[tuple[MlperfLog, Metrics, Clock]]:
    """Open a run's log and metrics, and close them on any exit. On ranks other than 0, `files` is None.

    On a CPU, metrics are written every `report_steps` steps.

    Raises RunError if a file can't be written.
    """
    with (
        MlperfLog(files.log if files else None) as log,
        Trace(files.trace if files else None) as trace,
        Metrics(files.metrics if files else None, world, trace, report_steps) as metrics,
    ):
        yield log, metrics, Clock(log, world, system.init_limit_minutes, startup, resumed, not_a_result, trace)
