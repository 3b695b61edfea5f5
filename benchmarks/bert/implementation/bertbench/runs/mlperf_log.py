"""Log MLPerf events by the official mllog, through context managers that refuse an illegal order.

The indentation shows what is timed: `with clock.init()` is untimed, `with clock.run()` is timed.
Key names and metadata: MLPerf Training rules and the official checker's ruleset 5.0.0.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mlperf_logging.mllog import constants
from mlperf_logging.mllog.mllog import MLLogger

from bertbench.common.atomic import LineFile
from bertbench.common.errors import RunError
from bertbench.common.paths import PACKAGE, REPOSITORY
from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.machine.energy import RunEnergy
from bertbench.machine.wall_clock import WallClock
from bertbench.runs.files import ResultFiles
from bertbench.runs.metrics import Metrics
from bertbench.runs.trace import Trace
from bertbench.runs.trace_format import ENERGY_KEY, EVALUATION, STARTUP_KEY

INTERRUPTED = "interrupted"
"""Key in the metadata of run_stop of a run that was interrupted and may be resumed."""
NOT_A_RESULT = "not_a_result"
"""Key of the event of a run that can't be a result; its value says why, such as smoke or profile."""
CLOCK_SET = "wall_clock_set"
"""Key of the event that says by how many seconds the wall clock was set during an attempt: no time is true then."""
# Stack frames between mllog and the line of our code that logs the event.
_STACK_OFFSET = 2


class _Lines(logging.Logger):
    """Logs whole lines, and raises an error if it can't. logging's own class prints a traceback and continues."""

    def __init__(self, file: LineFile) -> None:
        super().__init__("mlperf")
        self._file = file

    def log(self, level: int, msg: object, *_: object, **__: object) -> None:
        """Append a line."""
        self._file.append(f"{msg}\n")


class MlperfLog(LineFile):
    """Writes MLPerf lines to one file, each immediately; without a file (rank > 0), it writes nothing.

    Every method raises RunError if the file can't be written.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self._mllog = MLLogger(
            logger=_Lines(self), default_stack_offset=_STACK_OFFSET, root_dir=str(REPOSITORY or PACKAGE.parent)
        )

    def point(self, key: str, value: Any = None, metadata: dict[str, Any] | None = None) -> None:
        """Log an event at a point in time."""
        self._mllog.event(key, value, metadata)

    def contains(self, key: str) -> bool:
        """Return whether an event with this key has been logged."""
        return self._path is not None and f'"key": "{key}"' in self._path.read_text(encoding="utf-8")

    def start(self, key: str, metadata: dict[str, Any] | None = None) -> None:
        """Log the start of an interval."""
        self._mllog.start(key, metadata=metadata)

    def end(self, key: str, metadata: dict[str, Any] | None = None) -> None:
        """Log the end of an interval."""
        self._mllog.end(key, metadata=metadata)


class Run:
    """The timed part of a run: alternating training and evaluation, and how it ended."""

    def __init__(self, log: MlperfLog, evaluations: Iterable[tuple[int, float]], trace: Trace) -> None:
        self._log = log
        self._trace = trace
        self.status = constants.ABORTED
        self.reason: str | None = None
        self.evaluations = list(evaluations)
        """Training samples and accuracy of each evaluation."""
        self.samples = self.evaluations[-1][0] if self.evaluations else 0

    @property
    def accuracy(self) -> float:
        """Return the accuracy of the last evaluation; 0 before the first."""
        return self.evaluations[-1][1] if self.evaluations else 0.0

    @contextmanager
    def training(self, first_sample: int, samples: int, begun: bool = False) -> Iterator[None]:
        """Log the training between two evaluations: `samples` samples, starting at `first_sample`.

        If `begun`, the log already contains its start, because the run was resumed.
        """
        metadata = {constants.FIRST_EPOCH_NUM: first_sample}
        if not begun:
            self._log.start(constants.BLOCK_START, {**metadata, constants.EPOCH_COUNT: samples})
        yield
        self.samples = first_sample + samples
        self._log.end(constants.BLOCK_STOP, metadata)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Log an evaluation of the training so far; the code in the context calls `measured`."""
        metadata = {constants.EPOCH_NUM: self.samples}
        self._log.start(constants.EVAL_START, metadata)
        with self._trace.interrupted_by(EVALUATION):
            yield
        self._log.end(constants.EVAL_STOP, metadata)

    def measured(self, accuracy: float) -> None:
        """Log the accuracy of the current evaluation."""
        self.evaluations.append((self.samples, accuracy))
        self._log.point(constants.EVAL_ACCURACY, accuracy, {constants.EPOCH_NUM: self.samples})

    def success(self) -> None:
        """Log that the target was reached."""
        self.status, self.reason = constants.SUCCESS, None

    def aborted(self, reason: str) -> None:
        """Log that the run ends without reaching the target."""
        self.status, self.reason = constants.ABORTED, reason


@dataclass
class Clock:
    """Times initialisation and then the run, in this order and once each.

    If `resumed`, the clock is already running and includes initialisation, so neither starts here. `not_a_result` is
    the reason why a run can't be a result, such as `smoke`: its log says so, and never ends with success.
    """

    log: MlperfLog
    world: World
    init_limit_minutes: int
    startup: Startup
    resumed: bool = False
    not_a_result: str | None = None
    trace: Trace = field(default_factory=partial(Trace, None))
    _initialized: bool = False
    _ran: bool = False

    @contextmanager
    def init(self) -> Iterator[None]:
        """Log the initialisation, which isn't timed. Raises RunError if it takes longer than the division allows."""
        assert not self._initialized, "a run is initialised once"
        self.startup.mark("files")
        if self.resumed:
            yield
            self._initialized = True
            return
        self.log.start(constants.INIT_START)
        if self.not_a_result:
            self.log.point(NOT_A_RESULT, self.not_a_result)
        began = time.monotonic()
        yield
        minutes = (time.monotonic() - began) / 60
        if minutes > self.init_limit_minutes:
            piece, seconds = max(self.startup.seconds().items(), key=lambda item: item[1])
            raise RunError(
                f"initialisation took {minutes:.1f} min, but the division allows {self.init_limit_minutes} min; "
                f"shorten its longest part, {piece}, which took {seconds:.0f} s"
            )
        self.log.end(constants.INIT_STOP)
        self._initialized = True

    @contextmanager
    def run(self, evaluation_samples: int, evaluations: Iterable[tuple[int, float]] = ()) -> Iterator[Run]:
        """Time the run: start when all ranks are ready, stop on any exit, and log how it ended.

        `evaluations` are a resumed run's earlier ones.
        """
        assert self._initialized and not self._ran, "a run follows initialisation, once"
        self._ran = True
        run = Run(self.log, evaluations, self.trace)
        self.startup.mark("rest")
        energy = RunEnergy(reads=self.world.ranks.local_rank == 0)
        self.world.barrier()
        energy.start()
        if not self.resumed:
            self.log.start(constants.RUN_START)
        wall_clock = WallClock()
        self.startup.mark("waiting")
        self.trace.ready(self.startup)
        ending = _Ending(self, run, wall_clock, evaluation_samples)
        with self.world.watchdog.closing_log(ending.give_up):
            try:
                yield run
                if self.not_a_result:
                    run.aborted(f"--{self.not_a_result} takes a few steps: no result")
            except BaseException as error:  # including Ctrl+C: end the log, then raise the error again
                self.world.failure.begin()
                ending.is_interruption = True  # first: a signal may end the next line
                run.aborted(self.world.failure.account_for(error))
                raise
            finally:
                ending.write()
                energy.stop()
        # only rank 0 knows whether its wall clock, which the log has its times from, was set
        run.status, run.reason = self.world.from_all((run.status, run.reason))[0]
        if not self.resumed:  # neither is known of a run's earlier attempts
            self.log.point(STARTUP_KEY, None, self.startup.gathered(self.world))
            self.trace.start_up(self.startup)
            joules = energy.gathered(self.world)
            if joules:
                self.log.point(ENERGY_KEY, round(sum(joules.values()), 3), {"counters": joules})


class _Ending:
    """Stops the clock and writes the last lines of the log, once: this thread and the watchdog may both do so."""

    def __init__(self, clock: Clock, run: Run, wall_clock: WallClock, evaluation_samples: int) -> None:
        self._clock = clock
        self._run = run
        self._wall_clock = wall_clock
        self._evaluation_samples = evaluation_samples
        self._written = threading.Lock()
        self.is_interruption = False
        """Whether the run ends before its time, so that it may be resumed."""

    def write(self) -> None:
        """Stop the clock and log how the run ended, unless that is done or being done."""
        if not self._written.acquire(blocking=False):
            return
        self._check_wall_clock()
        log, run = self._clock.log, self._run
        log.point(constants.TRAIN_SAMPLES, run.samples)
        log.point(constants.EVAL_SAMPLES, self._evaluation_samples)
        metadata: dict[str, Any] = {constants.STATUS: run.status}
        if run.reason is not None:
            metadata["reason"] = run.reason
        if self.is_interruption:
            metadata[INTERRUPTED] = True
        log.end(constants.RUN_STOP, metadata)
        self._clock.trace.ended(**({} if self.is_interruption else {"status": run.status}))

    def give_up(self, cause: str) -> None:
        """End the run as interrupted, on behalf of a thread that can't."""
        self.is_interruption = True
        self._run.aborted(cause)
        self.write()

    def _check_wall_clock(self) -> None:
        """Fail the run as a result if the wall clock was set during it, or during an earlier attempt."""
        log = self._clock.log
        set_by_s = self._wall_clock.set_by_s()
        if set_by_s:
            log.point(CLOCK_SET, set_by_s)
        if self.is_interruption:
            return
        advice = "which makes its times wrong; let NTP set the clock before a run"
        if set_by_s:
            self._run.aborted(f"this machine's clock was set by {set_by_s:+,.3f} s during the run, {advice}")
        elif self._clock.resumed and log.contains(CLOCK_SET):
            self._run.aborted(
                f"this machine's clock was set before the run was resumed ({CLOCK_SET} in the log), {advice}"
            )


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
