"""Compute the learning rate of MLPerf's BERT: warm-up with an offset, then polynomial decay of power 1."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Schedule:
    """Learning rate by step, counted from 0 (mlcommons/training, BERT reference).

    While s - start_warmup_step < warmup_steps the rate is base * (s - start_warmup_step) / warmup_steps; after
    that it is end + (base - end) * (1 - s / decay_steps), and end beyond decay_steps. The decay is not shifted
    by the warm-up, so the rate jumps where warm-up ends. Closed division: end = 0.
    """

    base: float
    end: float
    warmup_steps: int
    start_warmup_step: int
    decay_steps: int
    delay_steps: int = 0
    """Age s of the gradients that a step applies."""
    correction_steps: int = 0
    """Steps over which the rate's correction for that age fades."""
    power: ClassVar[int] = 1
    """Power of the polynomial; the closed division requires 1."""

    def rate(self, step: int) -> float:
        """Return the learning rate of step `step` >= 0.

        Gradients of age s divide it by (1 + s) ** (1 - step / correction_steps) at first (PipeMare, Yang et al. 2021,
        section 3.1). SGD's largest stable rate falls as sin(pi / (4 s + 2)): to 0.50 at s = 1, 0.31 at s = 2.
        """
        rate = self._planned(step)
        if self.delay_steps and step < self.correction_steps:
            rate /= (1 + self.delay_steps) ** (1 - step / self.correction_steps)
        return rate

    def _planned(self, step: int) -> float:
        warmed = step - self.start_warmup_step
        if warmed < self.warmup_steps:
            return self.base * warmed / self.warmup_steps
        return self.end + (self.base - self.end) * max(0.0, 1 - step / self.decay_steps) ** self.power
