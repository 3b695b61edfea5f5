"""Define the model, search space and stopping rule of `lab clip --ranks`: a file in lab/studies."""

from typing import Annotated, NamedTuple

from pydantic import Field

from bertbench.common.errors import ConfigError
from bertbench.common.section import Count, Section
from bertbench.optim.options import ClipMode, OptimizerSettings
from lab.study.definition import Range
from lab.study.language_study import LanguageStudy


class Space(Section):
    """Ranges tuned for every arm, on logarithmic scales."""

    learning_rate: Range
    max_norm: Range
    one_minus_beta1: Range
    one_minus_beta2: Range


class Tuning(Section):
    """The budget of every arm."""

    trials: Count
    """Runs of one seed: half at random values that all arms share, half proposed by Optuna's TPE."""
    finalists: Count
    """How many of the best run again."""
    finalist_seeds: Count
    """Further seeds for each finalist; the comparison takes the best by their mean."""
    patience: Annotated[float, Field(ge=1)]
    """A run stops at this multiple of the samples of the arm's best, and counts as missing the target."""


class Stopping(Section):
    """When the comparison stops adding seeds: fixed before the first run."""

    half_width: Annotated[float, Field(gt=0, lt=1)]
    """Largest half-width of a difference's 95 % interval, as a share of the reference arm's mean."""
    first_look: Annotated[int, Field(ge=2)]
    """Seeds before the first look at the intervals."""
    look_every: Count
    """Seeds between two looks."""
    max_seeds: Count
    """Seeds at which the comparison ends, however wide its intervals."""


class Arm(NamedTuple):
    """A clip mode on a number of ranks; `after` doesn't depend on the number."""

    mode: ClipMode
    ranks: int

    @property
    def name(self) -> str:
        """Return the name used in tables and files."""
        return self.mode if self.mode == "after" else f"{self.mode}_{self.ranks}"

    @property
    def reference(self) -> str | None:
        """Return the name of the arm that this one is compared with; None for `after`."""
        return {"before": "after", "bucket": f"before_{self.ranks}"}.get(self.mode)


class Values(NamedTuple):
    """The values that tuning chose for an arm."""

    learning_rate: float
    max_norm: float
    one_minus_beta1: float
    one_minus_beta2: float


class RanksDefinition(LanguageStudy):
    """The study of clip modes; the optimizer's rate and betas are what tuning replaces."""

    bucket_mb: Annotated[float, Field(gt=0)]
    space: Space
    tuning: Tuning
    stopping: Stopping

    def tuned(self, values: Values) -> OptimizerSettings:
        """Return the optimizer with an arm's rate and betas."""
        betas = {"beta1": 1 - values.one_minus_beta1, "beta2": 1 - values.one_minus_beta2}
        return self.optimizer.model_copy(update={"learning_rate": values.learning_rate, **betas})

    def arms(self, ranks: tuple[int, ...]) -> list[Arm]:
        """Return the distinct arms for these numbers of ranks.

        Raises ConfigError if a number of ranks can't share the global batch evenly.
        """
        for number in ranks:
            if number < 2 or self.global_batch_size % number:
                raise ConfigError(
                    f"--ranks {number}: expected a divisor of the study's global batch, {self.global_batch_size}, "
                    "of at least 2; choose such a number"
                )
        modes: tuple[ClipMode, ...] = ("before", "bucket")
        return [Arm("after", 1), *(Arm(mode, number) for number in ranks for mode in modes)]
