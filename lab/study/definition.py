"""Read the definition of a study, a file in lab/studies, and define what several kinds have in common."""

from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from bertbench.common.errors import ConfigError, system_reason
from bertbench.common.section import Count, Section

_Kind = TypeVar("_Kind", bound=Section)


class Range(Section):
    """Values that tuning may try, on a logarithmic scale."""

    low: Annotated[float, Field(gt=0)]
    high: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}; exchange them")
        return self


class Tuning(Section):
    """The budget of every arm."""

    trials: Count
    """Runs of one seed: half at random values that all arms share, half proposed by Optuna's TPE."""
    finalists: Count
    """How many of the best run again; one alone needs no further run."""
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


def read_study(path: Path, kind: type[_Kind]) -> _Kind:
    """Read a study of one kind; raises ConfigError if the file can't be read or isn't one."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({system_reason(error)}); give the file of a study") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"{path}: {where}: {problem['msg']}; correct it there") from error
