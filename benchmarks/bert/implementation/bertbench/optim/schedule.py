"""The learning rate of MLPerf's BERT: warm-up with an offset, then polynomial decay of power 1."""

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
    power: ClassVar[int] = 1
    """Of the polynomial; the closed division's."""

    def rate(self, step: int) -> float:
        """The learning rate of step `step` >= 0."""
        warmed = step - self.start_warmup_step
        if warmed < self.warmup_steps:
            return self.base * warmed / self.warmup_steps
        return self.end + (self.base - self.end) * max(0.0, 1 - step / self.decay_steps) ** self.power
