"""Compare an idea of a CPU's step with its plain alternative: both in turns, once their results agree.

Both compute the same function of the same inputs, forward and backward, on one thread; medians count.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from bertbench.common.errors import RunError
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.random_samples import samples_of
from bertbench.model.shape import BertShape
from lab.bench.batches import wikipedia_batches
from lab.bench.harness import in_turns, milliseconds, paired_ratio

Tensors = tuple[torch.Tensor, ...]
Side = Callable[[], Tensors]

FP32 = 1e-4  # allowed difference, as a share of a tensor's largest element
DIFFERENT_MASKS = math.inf  # results of dropout can't be compared here; tests/model/test_cpu_arithmetic.py checks both


@dataclass(frozen=True)
class Trial:
    """An idea and its plain alternative."""

    alternative: str
    size: str
    file: str  # with the idea's code, in bertbench/
    sides: tuple[Side, Side]  # plain, ours
    tolerance: float = FP32


@dataclass(frozen=True)
class TrialRow:
    """Medians of one trial; `plain` names the alternative."""

    idea: str
    plain: str
    size: str
    plain_ms: float
    ours_ms: float
    ratio: float
    """Median of the rounds' quotients, with its interval below."""
    ratio_low: float | None
    ratio_high: float | None
    file: str


@dataclass(frozen=True)
class Setting:
    """What the trials compute on."""

    shapes: Mapping[str, BertShape]  # medium and demo
    demo_sequences: int
    demo_short: float  # share of the demo's sequences that have a random length; the others have the longest
    seed: int
    sequences: int = 4  # in a batch of Wikipedia's lengths

    def batch(self, size: str) -> Batch:
        """Return a batch of random tokens with the size's lengths."""
        shape, random = self.shapes[size], np.random.default_rng(self.seed)
        if size == "demo":
            drawn = random.integers(5, shape.max_positions, self.demo_sequences, endpoint=True)
            short = random.random(self.demo_sequences) < self.demo_short
            lengths = np.sort(np.where(short, drawn, shape.max_positions))[::-1]
        else:
            lengths = wikipedia_batches(self.sequences, 1, self.seed)[0].lengths
        return batch_of(samples_of(np.minimum(lengths, shape.max_positions), self.seed, shape.vocab_size))


Trials = Iterator[Trial]
Idea = Callable[[Setting], Trials]


def compare(idea: str, trial: Trial, rounds: int) -> TrialRow:
    """Time both sides `rounds` times, after one round that warms up. Raises RunError if results disagree."""
    difference = _difference(*(side() for side in trial.sides))
    if not difference <= trial.tolerance:
        raise RunError(
            f"{idea}: differs from {trial.alternative} by {difference:.1e} of a tensor's largest element, expected at "
            f"most {trial.tolerance:.1e}; not timed, because one of them is wrong"
        )

    def timed(side: Side, _: int) -> float:
        return milliseconds(side)

    times = in_turns({place: partial(timed, side) for place, side in enumerate(trial.sides)}, rounds, warm_up=1)
    plain_ms, ours_ms = (round(statistics.median(own), 4) for own in times.values())
    ratio = paired_ratio(*times.values())
    return TrialRow(idea, trial.alternative, trial.size, plain_ms, ours_ms, *ratio, trial.file)


def _difference(plain: Tensors, ours: Tensors) -> float:
    """Return the largest difference, as a share of its tensor's largest element; nan if a number is."""
    shares = [
        (own.double() - its.double()).abs().max() / its.double().abs().max().clamp(min=1e-30)
        for its, own in zip(plain, ours, strict=True)
    ]
    return float(torch.stack(shares).max())


def size_of(text: str, batch: Batch) -> str:
    """Return a trial's size: `text` and the batch's tokens."""
    return f"{text}, {len(batch.tokens_T):,} tokens"
