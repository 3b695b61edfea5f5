"""Define what `lab optimizer` trains and searches: a file in lab/studies."""

from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from bertbench.common.section import Count, Fraction, Section
from bertbench.common.seeding import derive
from bertbench.config.optimizer import MuonSettings, OptimizerName, OptimizerSettings
from bertbench.config.schedule import Schedule
from bertbench.config.sections import Model
from lab.study.definition import Range, Tuning
from lab.study.language_study import LanguageModelStudy

REFERENCE: OptimizerName = "adam"
"""The optimizer that all others are compared with."""
_WARMUP = 0.05  # share of the decay


class Cell(NamedTuple):
    """A start, a width and a batch, on which every optimizer is tuned."""

    start: str
    """`random` weights, or the common `checkpoint`."""
    hidden: int
    batch: int

    @property
    def name(self) -> str:
        """Return the name used in tables and files."""
        return f"{self.start}_w{self.hidden}_b{self.batch}"


class Arm(NamedTuple):
    """An optimizer on a cell."""

    optimizer: OptimizerName
    cell: Cell

    @property
    def name(self) -> str:
        """Return the name used in tables and files."""
        return f"{self.optimizer}_{self.cell.name}"


class Values(NamedTuple):
    """The values that tuning chooses for an arm."""

    learning_rate: float
    weight_decay: float
    one_minus_beta1: float
    """Muon's momentum is beta1, too."""
    one_minus_beta2: float
    decay_samples: float
    """Samples in which the rate falls to 0 and after which a run ends."""


class Space(Section):
    """Ranges that every optimizer shares."""

    weight_decay: Range
    one_minus_beta1: Range
    one_minus_beta2: Range


class Batch(Section):
    """A batch size."""

    size: Count
    interval_samples: Count
    """Samples between evaluations: a multiple of the size."""
    decay_samples: Range
    """Lengths of the rate's decay that are tried from random weights."""


class Checkpoint(Section):
    """The common start: Adam on the same language, in batches of `batch`.

    MLPerf's own checkpoint, too, was trained on the run's corpus beyond the plateau.
    """

    learning_rate: Annotated[float, Field(gt=0)]
    batch: Count
    accuracy: Annotated[float, Field(gt=0, lt=1)]
    """The first evaluation with this accuracy ends its training."""
    max_samples: Count
    decay_share: Annotated[float, Field(gt=0, le=1)]
    """Runs from it try lengths of the decay that are this share of those from random weights."""


class OptimizerDefinition(LanguageModelStudy):
    """The study; `model` has the first of `widths`."""

    widths: Annotated[tuple[Count, ...], Field(min_length=1)]
    """A wider model has a wider feed-forward layer in proportion."""
    batches: Annotated[tuple[Batch, ...], Field(min_length=1)]
    target: Annotated[float, Field(gt=0, lt=1)]
    learning_rates: dict[OptimizerName, Range]
    """The optimizers and the rates that are tried: ranges of one ratio."""
    space: Space
    epsilon: Annotated[float, Field(gt=0)]
    ema_windows: Annotated[tuple[Fraction, ...], Field(min_length=1)]
    """Averages that are read out along with the weights: steps that an average reaches back, as shares of the decay."""
    checkpoint: Checkpoint
    tuning: Tuning
    seeds: Annotated[int, Field(ge=2)]
    """Runs of every arm in the comparison, side by side."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for batch in self.batches:
            if batch.interval_samples % batch.size:
                raise ValueError(
                    f"batches: interval_samples {batch.interval_samples} is no multiple of size {batch.size}; give "
                    "one, since a run evaluates between steps"
                )
        if REFERENCE not in self.learning_rates:
            raise ValueError(f"learning_rates: found no {REFERENCE}, which all others are compared with; add it")
        return self

    def arms(self) -> list[Arm]:
        """Return every optimizer on every cell, cell by cell."""
        cells = [
            Cell(start, hidden, batch.size)
            for start in ("random", "checkpoint")
            for hidden in self.widths
            for batch in self.batches
        ]
        return [Arm(name, cell) for cell in cells for name in self.learning_rates]

    def batch(self, size: int) -> Batch:
        """Return the batch of this size."""
        return next(batch for batch in self.batches if batch.size == size)

    def sized(self, hidden: int) -> Model:
        """Return the model of a width."""
        feed_forward = self.model.feed_forward_size * hidden // self.model.hidden_size
        return self.model.model_copy(update={"hidden_size": hidden, "feed_forward_size": feed_forward})

    def ranges(self, arm: Arm) -> dict[str, Range]:
        """Return what is searched for an arm, in the order of `Values`."""
        decay = self.batch(arm.cell.batch).decay_samples
        share = 1.0 if arm.cell.start == "random" else self.checkpoint.decay_share
        return {
            "learning_rate": self.learning_rates[arm.optimizer],
            **dict(self.space),
            "decay_samples": Range(low=share * decay.low, high=share * decay.high),
        }

    def sampler_seed(self, arm: Arm) -> int:
        """Return the search's seed: arms of one cell try the same random points, other cells other ones."""
        return derive(1, arm.cell.name) % 2**31

    def options(self, arm: Arm, values: Values) -> OptimizerSettings:
        """Return the optimizer's options with an arm's values."""
        beta1 = 1 - values.one_minus_beta1
        return OptimizerSettings(
            name=arm.optimizer, learning_rate=values.learning_rate, beta1=beta1, beta2=1 - values.one_minus_beta2,
            epsilon=self.epsilon, weight_decay=values.weight_decay, muon=MuonSettings(momentum=beta1),
        )  # fmt: skip

    def schedule(self, arm: Arm, values: Values) -> Schedule:
        """Return the rate by step, warm-up first; its `decay_steps` are all that a run may take."""
        steps = max(1, round(values.decay_samples / arm.cell.batch))
        return Schedule(values.learning_rate, 0.0, max(1, round(_WARMUP * steps)), -1, steps)
