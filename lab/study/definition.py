"""Define what a study compares and its tuning budget: a file in lab/studies."""

import json
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from bertbench.common.errors import ConfigError, system_reason
from bertbench.common.section import Count, Section
from bertbench.config import System, load_system

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


class Comparison(Section):
    """Two arms whose difference the study reports."""

    arm: str
    against: str


class Definition(Section):
    """One study."""

    question: str
    """The question it answers, in a line."""
    system: str
    """The system that every trial runs; a path is relative to the definition's folder."""
    arms: Annotated[dict[str, dict[str, Any]], Field(min_length=2)]
    """The settings that each arm changes, by its name."""
    space: Annotated[dict[str, Range], Field(min_length=1)]
    """The values tuned for every arm, with the same budget each."""
    tuning_trials: Count
    """The budget: runs for each arm, with seeds that the comparison doesn't use."""
    comparisons: tuple[Comparison, ...] = ()

    @model_validator(mode="after")
    def _compares_arms(self) -> Self:
        named = {name for comparison in self.comparisons for name in (comparison.arm, comparison.against)}
        if unknown := sorted(named - set(self.arms)):
            raise ValueError(f"comparisons: found no arm {', '.join(unknown)}; choose of {', '.join(self.arms)}")
        return self

    def trial_system(self, arm: str, values: dict[str, float]) -> System:
        """Return the system of an arm with these values; raises ConfigError if they don't fit it."""
        settings = {**self.arms[arm], **values, "checkpoint.final_weights": False}  # thousands of trials
        return load_system(self.system, [f"{name}={json.dumps(value)}" for name, value in settings.items()])


def read_definition(path: Path) -> Definition:
    """Read a study of real ranks; raises what `read_study` raises."""
    definition = read_study(path, Definition)
    if definition.system.endswith(".json"):
        return definition.model_copy(update={"system": str(path.parent / definition.system)})
    return definition


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
