"""Runs of one arm side by side: every seed evaluated at the same steps, as it is and by averages of its weights.

An average costs no run of its own: it follows the weights of a run and is read out at the same evaluations.
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertbench.common.errors import ConfigError
from bertbench.common.seeding import derive
from bertbench.config.optimizer import OptimizerSettings
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.model.loss import plain_weighted_loss
from bertbench.optim.average import AverageView, EvaluationView
from bertbench.optim.build import build_optimizer
from bertbench.optim.state import LogicalTensors
from bertbench.optim.zero1 import Weights
from lab.study.language_study import initial_model, masked_accuracy
from lab.study.optimizer_definition import Arm, OptimizerDefinition, Values
from lab.study.stopping_step import Curves, crossings

_CHECKPOINT_SEED = 500  # the comparison counts from 1, tuning from 1000

WEIGHTS = 0
"""The read-out of the weights themselves; number k > 0 is the k-th average."""


class Until(NamedTuple):
    """When runs may end before their decay does."""

    samples: Mapping[int, float]
    """Each read-out that is evaluated, with the samples at which it gives up."""
    settle: float = 1.0
    """After the mean has crossed, slower seeds may take up to this multiple of its samples."""


@dataclass(frozen=True)
class Group:
    """How runs side by side went."""

    interval: int
    """Samples between evaluations."""
    curves: dict[int, list[list[float]]]
    """By read-out: accuracies of each seed, the first before the first step."""

    def curves_of(self, read_out: int) -> Curves:
        """Return accuracies of a read-out: [N, E]."""
        return np.array(self.curves[read_out])

    def samples(self, read_out: int, target: float) -> float | None:
        """Return samples at which the mean of the seeds crosses the target; None if it doesn't."""
        crossing = crossings(self.curves_of(read_out).mean(0, keepdims=True), target)[0]
        return float(crossing) * self.interval if math.isfinite(crossing) else None


class Run:
    """A run of one seed."""

    def __init__(
        self, definition: OptimizerDefinition, arm: Arm, values: Values, seed: int, start: Bert | None, averages: int
    ) -> None:
        """Start from random weights that the seed fixes, or from a copy of `start`; follow this many averages."""
        self.model = initial_model(definition.sized(arm.cell.hidden), seed) if start is None else deepcopy(start)
        options = definition.options(arm, values)
        self._optimizer, _ = build_optimizer(self.model, options)
        self._schedule = definition.schedule(arm, values)
        self.steps = self._schedule.decay_steps
        """Steps until the end of the decay."""
        held = LogicalTensors(list(self.model.parameters()), self.model.fused_parameters())
        windows = definition.ema_windows[:averages]
        averaged = (AverageView(Weights(), held, _decay(window * self.steps)) for window in windows)
        self._views = [EvaluationView(Weights()), *averaged]
        """By read-out: the weights, then their averages."""
        self._batch = arm.cell.batch
        self._language, self._draws = definition.language(), np.random.default_rng(derive(seed, "data"))
        self._taken = 0

    def step(self) -> None:
        """Take the next step."""
        loss_backward(self.model, self._language.shares(self._draws, self._batch, 1)[0])
        self._optimizer.step(self._schedule.rate(self._taken))
        self._taken += 1
        for view in self._views:
            view.after_step(self._taken)

    def accuracy(self, read_out: int, held_out: Batch) -> float:
        """Return the share of masked words that a read-out ranks first."""
        with self._views[read_out].evaluating():
            return round(masked_accuracy(self.model, held_out), 6)


def run_group(
    definition: OptimizerDefinition, arm: Arm, values: Values, seeds: Sequence[int], start: Bert | None, until: Until
) -> Group:
    """Train all seeds evaluation by evaluation, to the end of the decay or until all read-outs are decided.

    A seed fixes initial weights and the order of the data, whatever the optimizer.
    """
    batch = definition.batch(arm.cell.batch)
    steps_between = batch.interval_samples // batch.size
    runs = [Run(definition, arm, values, seed, start, max(until.samples)) for seed in seeds]
    held_out = definition.held_out()
    curves = {read_out: [[run.accuracy(read_out, held_out)] for run in runs] for read_out in until.samples}
    group = Group(batch.interval_samples, curves)
    for evaluation in range(1, runs[0].steps // steps_between + 1):
        for place, run in enumerate(runs):
            for _ in range(steps_between):
                run.step()
            for read_out, own in curves.items():
                own[place].append(run.accuracy(read_out, held_out))
        if all(_settled(group.curves_of(read_out), definition.target, evaluation, group.interval, limit, until.settle)
               for read_out, limit in until.samples.items()):  # fmt: skip
            break
    return group


def train_checkpoint(definition: OptimizerDefinition, hidden: int) -> Bert:
    """Return the common start of a width.

    Raises ConfigError if its training doesn't get to the accuracy that the definition asks for.
    """
    settings, language = definition.checkpoint, definition.language()
    model = initial_model(definition.sized(hidden), _CHECKPOINT_SEED)
    adam = OptimizerSettings(name="adam", learning_rate=settings.learning_rate, epsilon=definition.epsilon)
    optimizer, _ = build_optimizer(model, adam)
    draws, held_out = np.random.default_rng(derive(_CHECKPOINT_SEED, "data")), definition.held_out()
    for _ in range(settings.max_samples // settings.batch):
        loss_backward(model, language.shares(draws, settings.batch, 1)[0])
        optimizer.step(settings.learning_rate)
        if masked_accuracy(model, held_out) >= settings.accuracy:
            return model
    raise ConfigError(
        f"checkpoint: found no accuracy of {settings.accuracy} within {settings.max_samples:,} samples at width "
        f"{hidden}; allow more samples, or another rate"
    )


def loss_backward(model: Bert, loaded: LoadedPart) -> None:
    """Leave the gradients of a batch in the parameters."""
    part, batch = loaded
    for parameter in model.parameters():
        parameter.grad = None
    weights = part.masked_lm_weight, part.next_sentence_weight
    plain_weighted_loss(model(*batch.inputs), *batch.labels, *weights).backward()


def _decay(window: float) -> float:
    """Return the decay of an average that reaches back `window` steps; 0 if that is less than one."""
    return 1 - 1 / max(1.0, window)


def _settled(curves_NE: Curves, target: float, evaluation: int, interval: int, limit: float, settle: float) -> bool:
    """Return whether a read-out has crossed the target, and its slow seeds too or long after it, or has given up."""
    crossing = crossings(curves_NE.mean(0, keepdims=True), target)[0]
    if math.isinf(crossing):
        return evaluation * interval >= limit
    return evaluation >= settle * crossing or bool((curves_NE >= target).any(1).all())
