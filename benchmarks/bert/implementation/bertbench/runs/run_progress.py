"""Show the progress of a timed run: steps, rate, MFU, loss, accuracy. None of it goes into an MLPerf log."""

import math
import time

from bertbench.common.evaluation import accuracy_text
from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.runs.metrics import FlopFields


class RunProgress(Progress):
    """Shows a timed run's steps, samples/s, MFU, loss, last accuracy, and time to the next evaluation."""

    def __init__(self, system: System, enabled: bool) -> None:
        super().__init__(enabled)
        self._steps = system.max_steps
        self._batch = system.global_batch_size
        self._target = system.evaluation.target
        self._began: float | None = None
        self._accuracy = "-"
        self._first_step = 0

    def trained(self, step: int, next_evaluation: int, loss: float, flops: FlopFields) -> None:
        """Show progress after `step` steps; the next evaluation follows `next_evaluation`; `flops` of the last step."""
        if not self._enabled:
            return
        if self._began is None:  # count from the end of the first step, to exclude start-up
            self._began, self._first_step = time.monotonic(), step
            return
        loss_text = "" if math.isnan(loss) else f"loss {loss:#.4g}  "  # a GPU's is not read before the first evaluation
        per_step = (time.monotonic() - self._began) / (step - self._first_step)
        speed = f"{_speed_text(self._batch / per_step)}{_utilisation_text(flops)}"
        self.update(
            step,
            self._steps,
            f"step {step}/{self._steps}  {speed}  {loss_text}acc {self._accuracy}  "
            f"eval in {per_step * (next_evaluation - step):.0f} s",
        )

    def evaluated(self, samples: int, accuracy: float) -> None:
        """Show the result of an evaluation."""
        self._accuracy = accuracy_text(accuracy, self._target)
        self.message(f"after {samples:,} samples: accuracy {self._accuracy} (target {self._target})")
        self._began = None


def _utilisation_text(flops: FlopFields) -> str:
    """Return the share of the devices' peak, if known; on a GPU it is known at evaluations."""
    mfu = flops.get("mfu")
    return "" if mfu is None else f" MFU {mfu:.0%}"


def _speed_text(samples_per_s: float) -> str:
    """Return a speed as text; from a million on in millions, because a terminal's line has no room for more digits."""
    if samples_per_s >= 1e6:
        return f"{samples_per_s / 1e6:.1f}M samples/s"
    return f"{samples_per_s:,.0f} samples/s"
