"""On SIGTERM or SIGUSR1, end all ranks after the same step, with a snapshot.

A rank can't stop alone, because the others would wait for it in their next all-reduce. So the ranks sum a flag, and
read the sum one round later. By then a GPU has finished the sum, and its host doesn't wait for it.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Self

import torch
from torch import Tensor

from bertbench.common.errors import StoppedError
from bertbench.distributed.world import World

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
# Steps between two sums. On a GPU one costs tens of microseconds; a CPU sums its metrics after every step anyway.
_ROUND = {"cpu": 1, "cuda": 8}


def stop_at_once() -> None:
    """Let a signal end this rank at once, because no training would be lost yet."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError(_described(number))

    _on_signal(stop)


def ignore_stops() -> None:
    """Ignore signals while exiting, so that a launcher that stops leaving ranks doesn't change their exit code."""
    _on_signal(signal.SIG_IGN)


class Preemption:
    """In the body, only record a signal; the ranks end together, at most two rounds of steps later.

    After a body without an error, ignore signals. A round is at least `every` steps.
    """

    def __init__(self, world: World, every: int = 1) -> None:
        self._world = world
        self._round = max(_ROUND[world.device.type], every)
        self._signal: str | None = None
        self._sum: Tensor | None = None
        self._copied = torch.cuda.Event() if world.device.type == "cuda" else None

    def __enter__(self) -> Self:
        _on_signal(self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            ignore_stops()

    def stops_after(self, step: int) -> bool:
        """Return whether all ranks end after this step; every rank must call it after every step."""
        if step % self._round:
            return False
        if self._sum is not None:
            if self._copied:
                self._copied.synchronize()
            if self._sum.item():
                return True
        if self._signal:
            self._world.failure.claim(f"rank {self._world.rank}: {self._signal}")  # for rank 0's log
        flag = torch.full((), float(self._signal is not None), device=self._world.device)
        self._sum = self._world.sum(flag).to("cpu", non_blocking=True)
        if self._copied:
            self._copied.record()
        return False

    def error(self, step: int) -> StoppedError:
        """Return the error that ends a rank after this step."""
        return StoppedError(f"{self._signal or f'{StoppedError.SIGN} a signal to another rank'}, after step {step}")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or _described(number)


def _on_signal(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)


def _described(number: int) -> str:
    return f"{StoppedError.SIGN} {signal.Signals(number).name}"
