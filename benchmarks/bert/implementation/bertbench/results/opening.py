"""The log, the metrics and the clock that every run, of pre-training or fine-tuning, begins with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from bertbench.results.metrics import Metrics
from bertbench.results.mlperf_log import Clock, MlperfLog
from bertbench.results.timeline import Timeline


class Opened(NamedTuple):
    """What a run writes to; on ranks other than 0 nothing reaches a file."""

    log: MlperfLog
    metrics: Metrics
    clock: Clock


@contextmanager
def open_run(
    system: System,
    world: World,
    files: ResultFiles | None,
    startup: Startup,
    resumed: bool = False,
    not_a_result: str | None = None,
    remedy: str = "lower optimizer.learning_rate or lengthen schedule.warmup_steps",
) -> Iterator[Opened]:
    """Open a run's log and metrics, and close them on any exit; `files` is None on ranks other than 0.

    `remedy` is what to do about a loss that isn't finite. Raises RunError if a file can't be written.
    """
    with (
        MlperfLog(files.log if files else None) as log,
        Timeline(files.timeline if files else None) as timeline,
        Metrics(files.metrics if files else None, world, log, remedy, timeline, system.sync.report_steps) as metrics,
    ):
        clock = Clock(log, world, system.init_limit_minutes, startup, resumed, not_a_result, timeline)
        yield Opened(log, metrics, clock)
