"""Progress for people, on standard error: a bar on a terminal, plain lines elsewhere. Never part of an MLPerf log."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tqdm import tqdm

if TYPE_CHECKING:  # benches tell their progress where pydantic isn't
    from bertbench.config import System

_LINE_EVERY_S = 10.0


class Progress:
    """What a long command tells while it works; silent on ranks other than 0."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._bar: tqdm | None = None
        self._terminal = sys.stderr.isatty()
        self._last_line = 0.0

    def say(self, text: str) -> None:
        """One line, above the bar where there is one."""
        if not self._enabled:
            return
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def update(self, done: int, total: int, text: str) -> None:
        """`done` of `total` units, and a text that says how it goes; a plain line at most every 10 seconds."""
        if not self._enabled:
            return
        if self._terminal:
            if self._bar is None:
                self._bar = tqdm(
                    total=total, file=sys.stderr, leave=False, bar_format="{percentage:3.0f}%|{bar:20}| {desc}"
                )
            self._bar.total = total
            self._bar.n = min(done, total)
            self._bar.set_description_str(text)
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class RunProgress(Progress):
    """Progress of a timed run: steps, samples/s, loss, last accuracy, time to the next evaluation."""

    def __init__(self, system: System, enabled: bool) -> None:
        super().__init__(enabled)
        self._system = system
        self._began: float | None = None
        self._accuracy = "not yet"
        self._first_step = 0

    def trained(self, step: int, next_evaluation: int, loss: float) -> None:
        """After `step` steps; the next evaluation follows step `next_evaluation`."""
        if not self._enabled:
            return
        if self._began is None:  # the first step's end: start-up is no step
            self._began, self._first_step = time.monotonic(), step
            return
        told = "" if math.isnan(loss) else f"loss {loss:.3f}  "  # a GPU's is not read before the first evaluation
        per_step = (time.monotonic() - self._began) / (step - self._first_step)
        self.update(
            step,
            self._system.max_steps,
            f"step {step}/{self._system.max_steps}  {self._system.global_batch_size / per_step:,.0f} samples/s  "
            f"{told}accuracy {self._accuracy}  "
            f"next evaluation in {per_step * (next_evaluation - step):.0f} s",
        )

    def evaluated(self, samples: int, accuracy: float) -> None:
        """After an evaluation."""
        self._accuracy = f"{accuracy:.4f}"
        self.say(f"after {samples:,} samples: accuracy {accuracy:.4f} (target {self._system.evaluation.target})")
        self._began = None
