"""What `study clip --ranks` trains, searches and promises: a file in benchmarks/bert/studies."""

from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from bertbench.common.errors import ConfigError
from bertbench.config.optimizer import Optimizer
from bertbench.config.sections import Count, Evaluation, Model, Schedule, Section
from bertbench.optim.options import ClipMode
from bertbench.study.definition import Range
from bertbench.study.language import Language


class Words(Section):
    """The language (study/language.py); the model's vocabulary and positions say its words and lengths."""

    followers: Count
    """Words that may follow a word."""
    masked: Count
    """Masked words of a sequence."""
    held_out: Count
    """Sequences of the evaluation."""


class Space(Section):
    """What is tuned for every arm, on logarithmic scales."""

    learning_rate: Range
    max_norm: Range
    one_minus_beta1: Range
    one_minus_beta2: Range


class Tuning(Section):
    """The budget of every arm."""

    trials: Count
    """Runs of one seed: half at random values, the same for all arms, half where Optuna's TPE proposes."""
    finalists: Count
    """The best of these run again,"""
    finalist_seeds: Count
    """with so many other seeds each; the best by their mean is what the comparison takes."""
    patience: Annotated[float, Field(ge=1)]
    """A run stops at so many times the samples of the arm's best, as if it had missed the target."""


class Stopping(Section):
    """When the comparison has enough seeds: fixed before the first run."""

    half_width: Annotated[float, Field(gt=0, lt=1)]
    """Largest half of a difference's 95 % interval, as a share of the mean that it is taken from."""
    first_look: Annotated[int, Field(ge=2)]
    """Seeds before the rule is asked for the first time,"""
    look_every: Count
    """and between two looks."""
    max_seeds: Count
    """Seeds at which the comparison ends whatever its intervals."""


class Arm(NamedTuple):
    """A clip mode on a number of ranks; clipping after the reduction doesn't depend on it."""

    mode: ClipMode
    ranks: int

    @property
    def name(self) -> str:
        """As tables and files call it."""
        return self.mode if self.mode == "after" else f"{self.mode}_{self.ranks}"


class Values(NamedTuple):
    """What tuning chose for an arm."""

    learning_rate: float
    max_norm: float
    one_minus_beta1: float
    one_minus_beta2: float


class LanguageStudy(Section):
    """What every study of the language trains."""

    question: str
    model: Model
    words: Words
    optimizer: Optimizer
    schedule: Schedule
    bucket_mb: Annotated[float, Field(gt=0)]
    global_batch_size: Count
    evaluation: Evaluation
    """`interval_samples` a multiple of the global batch."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        interval = self.evaluation.interval_samples
        if interval is None or interval % self.global_batch_size:
            raise ValueError(
                f"evaluation.interval_samples {interval} is no multiple of global_batch_size {self.global_batch_size}; "
                "give one, since a run evaluates between steps"
            )
        if self.model.max_positions % 2 or self.words.masked >= self.model.max_positions:
            raise ValueError("model.max_positions must be even and above words.masked; change one of them")
        if self.optimizer.sharded or self.optimizer.ema_decay:
            raise ValueError("optimizer.sharded and optimizer.ema_decay are not for virtual ranks; leave them out")
        return self

    def language(self) -> Language:
        """Return the language that all runs learn."""
        model = self.model
        return Language(model.vocab_size, self.words.followers, model.max_positions, self.words.masked)


class RanksDefinition(LanguageStudy):
    """The study of clip modes; the optimizer's rate and betas are what tuning replaces."""

    space: Space
    tuning: Tuning
    stopping: Stopping

    def tuned(self, values: Values) -> Optimizer:
        """Return the optimizer with an arm's rate and betas."""
        betas = {"beta1": 1 - values.one_minus_beta1, "beta2": 1 - values.one_minus_beta2}
        return self.optimizer.model_copy(update={"learning_rate": values.learning_rate, **betas})

    def arms(self, ranks: tuple[int, ...]) -> list[Arm]:
        """Return the arms of these numbers of ranks, those that differ.

        Raises ConfigError if a number of ranks can't share the global batch evenly.
        """
        for number in ranks:
            if number < 2 or self.global_batch_size % number:
                raise ConfigError(
                    f"--ranks {number}: expected at least 2, and a divisor of the study's global batch, "
                    f"{self.global_batch_size}; choose 2, 4, 8 or more up to it"
                )
        modes: tuple[ClipMode, ...] = ("before", "bucket")
        return [Arm("after", 1), *(Arm(mode, number) for number in ranks for mode in modes)]
