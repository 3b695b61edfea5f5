"""Find the rank that stalls: every rank sends heartbeats, and all ranks end with one verdict that names it.

A process that is stopped, or whose node is lost, can't report it, and the others wait for it in a collective. So a
thread of each rank writes a heartbeat with its main thread's place to the store, a few times in `silent_s`. Rank 0
watches all ranks; the others watch rank 0 and the store, which may be in its process. The main thread only counts the
places that it comes to (0.4 us each, two per step).

Silence is counted in rounds of the watching thread, not in seconds, so that no rank is blamed when the whole job is
suspended.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from torch.distributed.distributed_c10d import Store

from bertbench.common.errors import BertbenchError, RunError, StoppedError
from bertbench.distributed import evidence
from bertbench.distributed.device_steps import DeviceSteps
from bertbench.distributed.failure import FAILURE_KEY, READ_EVERY_S, FailureReport, end_process, report_to_launcher
from bertbench.distributed.ranks import Ranks
from bertbench.distributed.rendezvous import ranks_text

Batch = TypeVar("Batch")
_BEAT_KEY = "bertbench/beat"
_LEAST_ROUNDS = 10  # fewest rounds without a heartbeat after which a rank counts as silent
_GRACE_S = 3.0
_NAMED_HOSTS = 4


class Limits(NamedTuple):
    """How long a rank may stall, in seconds."""

    silent_s: float
    """Seconds without a heartbeat."""
    progress_s: float
    """Seconds at one place, with heartbeats."""

    @property
    def device_s(self) -> float:
        """Return how long a GPU with steps to compute may take to finish one: 60 s if a place may take 600.

        A step only computes and communicates. Reading samples, saving and compiling, which may take minutes, aren't
        parts of it.
        """
        return self.progress_s / 10


class Place(NamedTuple):
    """Where the main thread of a rank is."""

    number: int = 0
    """Places passed so far. All ranks pass the same ones in the same order, so the rank with the fewest is behind."""
    doing: str = "starting"
    step: int = 0

    def __str__(self) -> str:
        return f"{self.doing} (step {self.step})" if self.step else self.doing


class _Heartbeat(NamedTuple):
    """What a rank's thread writes to the store."""

    answers: int
    """The number of the store's answers so far, so that each heartbeat of a living rank differs from the last."""
    ended: bool
    """Whether the rank has ended normally."""
    host: str
    place: Place
    finished: int | None
    """The last step that the GPU has finished; None on a CPU, where steps don't run ahead."""
    line: str
    """The line of our code at which the main thread is."""

    def encoded(self) -> str:
        """Return the heartbeat as text for the store."""
        return json.dumps(self)

    @classmethod
    def read(cls, content: bytes) -> "_Heartbeat":
        """Read the output of `encoded`."""
        answers, ended, host, place, finished, line = json.loads(content)
        return cls(answers, ended, host, Place(*place), finished, line)

    @property
    def progress(self) -> tuple[int, int]:
        """Return how far the rank is. All ranks finish the same steps and pass the same places in the same order."""
        return self.finished or 0, self.place.number

    def __str__(self) -> str:
        if self.finished is None:
            return str(self.place)
        return f"{self.place}, whose GPU has finished step {self.finished}"


class _Answer(NamedTuple):
    """An answer of the store."""

    number: int = 0
    """Counts the answers."""
    cause: str = ""
    """Why the run ends, as a rank has reported it; empty while it goes on."""
    beats: Sequence[bytes] = ()
    """The last heartbeat of each watched rank, encoded."""


class Watchdog:
    """One rank's watchdog, on a connection to the store that it shares only with the rank's failure report."""

    def __init__(
        self,
        store: Store,
        ranks: Ranks,
        failure: FailureReport,
        limits: Limits,
        device_steps: DeviceSteps | None = None,
    ) -> None:
        """Watch through a store. `device_steps` are the steps of a GPU, which the main thread runs ahead of."""
        self._store = store
        self._ranks = ranks
        self._failure = failure
        self._limits = limits
        self._device_steps = device_steps
        self._interval = min(READ_EVERY_S, limits.silent_s / _LEAST_ROUNDS)
        self._rounds = round(limits.silent_s / self._interval)
        self._place = Place()
        self._since = time.monotonic()
        self._watched = range(ranks.size) if ranks.rank == 0 else range(1)
        # `_beat` replaces it as a whole, and `_judge` takes it once a round: so neither thread needs a lock
        self._answer = _Answer()
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=task, daemon=True) for task in (self._beat, self._judge)]
        self._evidence: Path | None = None
        self._close_log: Callable[[str], None] = lambda cause: None
        self._show()

    def at(self, doing: str, step: int = 0) -> None:
        """Record that the main thread begins something that all ranks do; `step` is 0 outside of steps."""
        self._since = time.monotonic()  # first: `_judge` must not see the new place with the old one's time
        self._place = Place(self._place.number + 1, doing, step)

    def around(self, batches: Iterator[Batch], steps_taken: int) -> Iterator[Batch]:
        """Yield the batches; the place is "loading samples" before each one and "training" after it."""
        self.at("loading samples", steps_taken + 1)
        for step, batch in enumerate(batches, start=steps_taken + 1):
            self.at("training", step)
            yield batch
            if self._device_steps is not None:
                self._device_steps.launched(step)
            self.at("loading samples", step + 1)

    def leave_evidence_in(self, folder: Path) -> None:
        """Write evidence to `folder` before a verdict ends this process (distributed/evidence.py)."""
        self._evidence = folder

    def goes_on(self) -> None:
        """Record progress of the main thread at its place."""
        self._since = time.monotonic()

    @contextmanager
    def closing_log(self, close: Callable[[str], None]) -> Iterator[None]:
        """In the body, let a verdict call `close` with the cause before this process ends."""
        before = self._close_log
        self._close_log = close
        try:
            yield
        finally:
            self._close_log = before

    def start(self) -> None:
        """Begin to watch; call it after a barrier, so that every rank has sent a heartbeat."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the watch, so that a rank that ends normally doesn't count as silent."""
        self._closed.set()
        for thread in self._threads:
            thread.join(self._interval)

    def _show(self, ended: bool = False) -> None:
        line = evidence.place_of(threading.main_thread())
        finished = None if self._device_steps is None else self._device_steps.finished
        beat = _Heartbeat(self._answer.number, ended, socket.gethostname(), self._place, finished, line)
        self._store.set(_key(self._ranks.rank), beat.encoded())

    def _beat(self) -> None:
        keys = [FAILURE_KEY, *map(_key, self._watched)]
        while not self._closed.wait(self._interval):
            if self._device_steps is not None:
                with suppress(RuntimeError):  # the main thread meets the device's error and reports it
                    self._device_steps.look()
            with suppress(RuntimeError, OSError):  # a single round without an answer is harmless: `_judge` counts them
                self._show()
                reported, *beats = self._store.multi_get(keys)
                self._answer = _Answer(self._answer.number + 1, reported.decode(), beats)
        with suppress(RuntimeError, OSError):  # the process that held the store may be gone
            self._show(ended=True)

    def _judge(self) -> None:
        heard = 0
        unanswered = 0
        seen: list[bytes] = [b""] * len(self._watched)
        silent = [0] * len(self._watched)
        while not self._closed.wait(self._interval):
            answer = self._answer
            if answer.cause and StoppedError.SIGN not in answer.cause:  # ranks stop by themselves on a signal
                self._end(answer.cause)
            if answer.number == heard:
                unanswered += 1
                if unanswered >= self._rounds:
                    silence = self._silence(" of it or its store")
                    self._end(f"rank 0 of {self._ranks.size}: {silence}", store_lives=False)
                continue
            heard = answer.number
            unanswered = 0
            for rank, beat in zip(self._watched, answer.beats, strict=True):
                is_silent = beat == seen[rank] and not _Heartbeat.read(beat).ended
                silent[rank] = silent[rank] + 1 if is_silent else 0
                seen[rank] = beat
            if max(silent) >= self._rounds:
                # one round less for the other ranks of a lost node: they fall silent within a round of each other
                silent_ranks = [rank for rank in self._watched if silent[rank] >= self._rounds - 1]
                self._end_for(silent_ranks, answer.beats, self._silence())
            if self._ranks.rank == 0 and self._is_stuck():
                self._end_for(
                    self._ranks_behind(answer.beats),
                    answer.beats,
                    f"no progress for {self._limits.progress_s:g} s; look at its disk, its GPU and what else runs "
                    "there, or raise launch.progress_timeout_s",
                )
            if self._ranks.rank == 0 and self._device_is_stuck():
                self._end_for(
                    self._ranks_behind(answer.beats),
                    answer.beats,
                    f"no step finished for {self._limits.device_s:g} s; look at its GPU and its network, or raise "
                    "launch.progress_timeout_s, ten times as long",
                )

    def _is_stuck(self) -> bool:
        """Return whether this rank's main thread has been at one place for too long."""
        has_begun = self._place.number > 0
        return has_begun and time.monotonic() - self._since >= self._limits.progress_s

    def _device_is_stuck(self) -> bool:
        """Return whether this rank's GPU has taken too long for a step.

        Nothing else shows a hang inside the replay of a graph: NCCL has no work in progress to name, and the main
        thread continues to launch steps.
        """
        return self._device_steps is not None and self._device_steps.waiting_s() >= self._limits.device_s

    def _ranks_behind(self, encoded_beats: Sequence[bytes]) -> list[int]:
        progress = [_Heartbeat.read(beat).progress for beat in encoded_beats]
        return [rank for rank in self._watched if progress[rank] == min(progress)]

    def _silence(self, of_what: str = "") -> str:
        return f"no sign of life{of_what} for {self._limits.silent_s:g} s; stopped, or lost with its node or network"

    def _end_for(self, ranks: list[int], encoded_beats: Sequence[bytes], cause: str) -> NoReturn:
        beats = [_Heartbeat.read(encoded_beats[rank]) for rank in ranks]
        hosts = sorted({beat.host for beat in beats})
        where = f"{ranks_text(ranks, self._ranks.size)} on {', '.join(hosts[:_NAMED_HOSTS])}"
        self._end(f"{where}, while {beats[0]}: {cause}{self._seen(ranks, beats[0].line)}", lost=len(ranks))

    def _seen(self, ranks: list[int], line: str) -> str:
        """Return where the first of the ranks was last seen, where this rank waits, and the folder of the evidence."""
        text = ""
        if line:
            text += f"; last seen in {line}"
        if self._ranks.rank not in ranks and (waiting := evidence.waiting_in()):
            text += f"; rank {self._ranks.rank} waits in {waiting}"
        if self._evidence:
            text += f"; the stacks of living ranks are in {self._evidence}"
        return text

    def _end(self, cause: str, store_lives: bool = True, lost: int = 0) -> NoReturn:
        if self._evidence:  # in a thread: the disk may be what hangs
            writing = threading.Thread(
                target=evidence.write_stacks, args=(self._evidence, self._ranks.rank), daemon=True
            )
            writing.start()
            writing.join(_GRACE_S)
        is_first_here = self._failure.begin(_GRACE_S)
        prints = self._ranks.local_rank == 0
        if store_lives:
            prints = self._failure.report(cause)
            cause = self._failure.reported() or cause
        if is_first_here:
            with suppress(BertbenchError):  # on a full disk, the cause is printed anyway
                self._close_log(cause)
        if store_lives:
            self._failure.let_others_read(lost)
        report_to_launcher(cause)
        end_process(cause if prints else None, RunError.exit_code)


def _key(rank: int) -> str:
    return f"{_BEAT_KEY}/{rank}"
