"""Progress of a timed run for people: steps, rate, loss, accuracy. Never part of an MLPerf log."""

import math
import time

from bertbench.common.evaluation import accuracy_text
from bertbench.common.progress import Progress
from bertbench.config import System


class RunProgress(Progress):
    """Progress of a timed run: steps, samples/s, loss, last accuracy, time to the next evaluation."""

    def __init__(self, system: System, enabled: bool) -> None:
        super().__init__(enabled)
        self._steps = system.max_steps
        self._batch = system.global_batch_size
        self._target = system.evaluation.target
        self._began: float | None = None
        self._accuracy = "-"
        self._first_step = 0

    def trained(self, step: int, next_evaluation: int, loss: float) -> None:
        """After `step` steps; the next evaluation follows step `next_evaluation`."""
        if not self._enabled:
            return
        if self._began is None:  # count from the first step's end, to exclude start-up
            self._began, self._first_step = time.monotonic(), step
            return
        loss_text = "" if math.isnan(loss) else f"loss {loss:.3f}  "  # a GPU's is not read before the first evaluation
        per_step = (time.monotonic() - self._began) / (step - self._first_step)
        self.update(
            step,
            self._steps,
            f"step {step}/{self._steps}  {self._batch / per_step:,.0f} samples/s  "
            f"{loss_text}acc {self._accuracy}  eval in {per_step * (next_evaluation - step):.0f} s",
        )

    def evaluated(self, samples: int, accuracy: float) -> None:
        """After an evaluation."""
        self._accuracy = accuracy_text(accuracy, self._target)
        self.message(f"after {samples:,} samples: accuracy {self._accuracy} (target {self._target})")
        self._began = None
