"""Follow a run's files in a side process of rank 0, and send their content to trackers and scrapers.

The process has the lowest priority and reads files that the run writes anyway. Its failures are warnings: if a tracker
refuses something, it gets it again with the next steps. If ranks use all processors, any other work slows down a step.
So trackers get a small share of one processor during the run, and the remaining steps after it.

The process ends after the rank that started it has ended for any reason, because its standard input, a pipe from the
rank, is then closed.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bertbench.common.errors import BertbenchError, ConfigError
from bertbench.report.feed import Feed
from bertbench.report.followed_run import FollowedRun
from bertbench.report.openmetrics import address, check_free, serve
from bertbench.report.rank_processes import children, processor_s
from bertbench.report.run_list import status
from bertbench.report.run_state import RunState, earlier_runs, state_of
from bertbench.report.trackers import check_installed, check_packages, folder_of, open_tracker

_EVERY_S = 5.0
SHARE = 0.002  # of one processor; MLflow takes 1 ms for a step, W&B 0.5 ms, TensorBoard 0.1 ms, its line 0.02 ms
_AT_ONCE = 10  # steps that are sent before the process checks how much time they took
_BYTES_AT_ONCE = 1 << 12  # the lines of about as many steps
_LOWEST_PRIORITY = 19
_READY = "ready"
_LONGEST_REASON = 300
_START_UP_S = 120.0  # importing trackers takes seconds; waiting for an unreachable server takes minutes
_LAST_WORK_S = 60.0  # the time in which a tracker may still write after the run


def check_side_work(track: Sequence[str], port: str | None) -> None:
    """Raise ConfigError if a tracker isn't installed, or if the port can't be used."""
    check_installed(track)
    if port:
        check_packages("metrics", ["prometheus_client"], "metrics")
        check_free(address(port))


@contextmanager
def side_process(track: Sequence[str], port: str | None, log: Path, runs: Path) -> Iterator[None]:
    """Run the side process within the context, with these trackers, and with OpenMetrics on a port or HOST:PORT.

    The process is ready when the context begins, so that imports of trackers aren't timed. Raises ConfigError if the
    process can't do its work.
    """
    command = [sys.executable, "-P", "-m", "bertbench.report.side_process", str(log), str(runs), port or "", *track]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    answered = select.select([process.stdout], [], [], _START_UP_S)[0]
    said = (
        process.stdout.readline().strip()
        if answered
        else f"--track: the tracker was not ready after {_START_UP_S:.0f} s; make sure that it can be reached"
    )
    if said != _READY:
        process.kill()
        process.wait()
        raise ConfigError(said or "the process for --track and --metrics-port failed to start; leave out these options")
    try:
        yield
    finally:
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORK_S if sys.exc_info()[0] is None else 0)  # a failing rank doesn't wait


def main(log: str, runs: str, port: str, *track: str) -> int:
    """Follow a run until its rank ends; the arguments are those of `side_process`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # signals are meant for the run, which ends first
    _step_aside()
    try:
        check_side_work(track, port)
        side = SideWork(Path(log), Path(runs), track, port)
    except Exception as error:  # noqa: BLE001 - each tracker raises its own kinds of errors
        reason = str(error) if isinstance(error, BertbenchError) else f"--track: {error!r}"[:_LONGEST_REASON]
        print(" ".join(reason.split()), flush=True)
        return 1
    print(_READY, flush=True)
    while side.rank_lives() and not select.select([sys.stdin], [], [], _EVERY_S)[0]:
        side.look()
    side.close()
    return 0


def _step_aside() -> None:
    """Leave the processors to the ranks: run when processors are idle, and on any of them even if the rank is bound."""
    os.nice(_LOWEST_PRIORITY)
    with suppress(OSError, AttributeError):  # Linux only; a container may forbid it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def _earned_s() -> float:
    """Return the unused part of this process's share: the share so far, minus the time used by it and its children."""
    return SHARE * time.monotonic() - time.process_time() - sum(map(processor_s, children(os.getpid())))


class SideWork:
    """The work of the side process: follow a run's files, serve and track."""

    def __init__(self, log: Path, runs: Path, track: Sequence[str], port: str = "") -> None:
        self._run = FollowedRun(log)
        self._waiting: list[int] = []
        self._warned: set[tuple[str, str]] = set()
        self._rank = os.getppid()
        self._feeds = {name: Feed(self._run, open_tracker(name, self._run, folder_of(name, runs))) for name in track}
        self._port = port
        if port:
            self._earlier = earlier_runs(log)
            self._state = self._stands()
            serve(address(port), lambda: self._state)
        self._forward(list(self._run.rows))
        self._before_s = _earned_s()  # imports weren't timed

    def rank_lives(self) -> bool:
        """Return whether the rank that started this process still runs; its children may keep the pipe open."""
        return os.getppid() == self._rank

    def look(self) -> None:
        """Look at the run. If that fails, print a warning; the next look may succeed."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - for example, a file may be replaced at this moment
            self._warn("the run's state", error, "it is read again")

    def _look(self) -> None:
        """Read and send as much of the run's new output as there is time for."""
        if self._port:  # scrapers need the current state; trackers get every step, but may get it later
            self._waiting += self._run.read()
            self._state = self._stands()
        while self._feeds and _earned_s() > self._before_s:
            self._waiting = self._waiting or self._run.read(_BYTES_AT_ONCE)
            if not self._waiting:
                break
            self._forward(self._waiting[:_AT_ONCE])
            del self._waiting[:_AT_ONCE]

    def close(self) -> None:
        """Send the rest, after the clock has stopped."""
        self._forward(self._waiting + self._run.read())
        stands = status(self._run.log, self._run.facts)
        ended = "interrupted" if stands == "running" else stands  # the rank has ended
        self._each(lambda feed: feed.close(ended), "`bertbench track` records it afterwards")

    def _stands(self) -> RunState:
        return state_of(self._run, earlier=self._earlier)

    def _forward(self, steps: list[int]) -> None:
        self._each(lambda feed: feed.forward(steps))

    def _each(self, act: Callable[[Feed], None], then: str = "it is tried again") -> None:
        """Warn of a tracker that fails; it gets what it refused again with the next steps."""
        for name, feed in self._feeds.items():
            try:
                act(feed)
            except Exception as error:  # noqa: BLE001 - each tracker raises its own kinds of errors
                self._warn(name, error, then)

    def _warn(self, what: str, error: Exception, then: str) -> None:
        """Print a warning, unless the same warning has been printed before."""
        if (what, then) not in self._warned:
            said = " ".join(repr(error).split())[:_LONGEST_REASON]
            print(f"warning: {what}: {said}; the run continues, and {then}", file=sys.stderr, flush=True)
        self._warned.add((what, then))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
