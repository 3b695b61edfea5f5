"""Define a study: what all configurations share, how they differ, what is tuned, and what is compared.

A definition is a file in lab/studies. Its runs train a made-up language (language_run.py) or, if it names one, a system
(system_run.py). Settings are named as in --set (`optimizer.beta1`). A setting whose value has `low` and `high` is tuned
within that range.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PositiveFloat, model_validator

from bertbench.common.errors import ConfigError
from bertbench.common.json_object import read_as
from bertbench.common.section import Count, Section

STUDIES = Path(__file__).parents[1] / "studies"
"""Our definitions, a JSON file each."""
Values = dict[str, float]
"""What tuning chose for a configuration, by setting."""
Prune = Callable[[float, float], bool]
"""Takes the samples and the accuracy of an evaluation, and returns whether tuning ends the run there."""


class Range(Section):
    """Values that tuning may try, on a logarithmic scale."""

    low: PositiveFloat
    high: PositiveFloat
    one_minus: bool = False
    """Whether the bounds are those of one minus the value, as is useful for betas."""

    def value(self, drawn: float) -> float:
        """Return the setting's value, given a number between the bounds; the inverse is the same function."""
        return 1 - drawn if self.one_minus else drawn

    def place(self, value: float) -> float:
        """Return the relative position of a value: 0 at `low`, 1 at `high`."""
        return math.log(self.value(value) / self.low, self.high / self.low)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}; swap them")
        return self


Settings = dict[str, Annotated[Range | Any, Field(union_mode="left_to_right")]]


class Tuning(Section):
    """The budget for tuning each configuration."""

    trials: Count
    """The values to try. Half are random, the same for all configurations of a cell; TPE proposes the rest."""
    seeds: Count = 1
    """The number of runs with each value. Their mean counts; the first run that misses the target ends the trial."""
    patience: Annotated[float, Field(ge=1)]
    """A run stops at this multiple of the configuration's fewest samples so far, and counts as missing the target."""
    at_least: str | None = None
    """A tuned setting whose value is the least number of samples that a run counts.

    If it is `decay_samples`, a run counts until its target is reached and its decay is over, so that the best decays
    end near the target.
    """


class Pair(Section):
    """Two configurations whose difference the study reports in every cell; in the file, a configuration is an `arm`."""

    arm: str
    against: str


@dataclass(frozen=True)
class Configuration:
    """A configuration that a study compares: one of the definition's `arms` in one cell."""

    name: str
    kind: str
    """Its name in the definition, without the cell."""
    cell: Mapping[str, str]
    """The level of each dimension."""
    settings: dict[str, Any]
    """The settings in which it differs; its rows repeat them."""
    space: Mapping[str, Range]
    against: tuple[str, ...]
    """The names of the configurations with which it is compared."""


class Definition(Section):
    """One study."""

    question: str
    limits: tuple[str, ...] = ()
    """The limits of its answer."""
    system: str | None = None
    """The system that all runs train; without it, they train on the made-up language."""
    setting: dict[str, Any]
    """The settings that all runs share."""
    arms: Annotated[dict[str, Settings], Field(min_length=2)]
    """For each configuration, by name, the settings in which it differs."""
    cells: Annotated[dict[str, dict[str, Settings]], Field(default_factory=dict)]
    """Dimensions and their levels, such as ranks. Configurations are tuned and compared for each combination."""
    space: Annotated[dict[str, Range], Field(default_factory=dict)]
    """The ranges that are tuned for all configurations."""
    tuning: Tuning | None = None
    comparisons: tuple[Pair, ...] = ()
    equal_values: bool = False
    """Whether both sides of each comparison also run with the values that were tuned for either.

    A search with few runs may by chance find better values for one configuration than for another. With equal values,
    only the configurations differ.
    """
    seeds: Count = 5
    """The number of runs of every configuration in the comparison."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        compared = {name for pair in self.comparisons for name in (pair.arm, pair.against)}
        unknown = sorted(compared - set(self.arms))
        if unknown:
            raise ValueError(
                f"comparisons: found no configuration {', '.join(unknown)}; choose from {', '.join(self.arms)}"
            )
        spaces = [configuration.space for configuration in self.configurations()]
        if self.tuning is None:
            if any(spaces):
                raise ValueError("tuning: found ranges to tune but no budget; add trials and patience")
            return self
        least = self.tuning.at_least
        if least and not all(least in space for space in spaces):
            raise ValueError(f"tuning.at_least: {least} isn't tuned in every arm; give it a range or leave it out")
        return self

    def configurations(self) -> list[Configuration]:
        """Return all configurations, cell by cell."""
        every_cell = product(*self.cells.values())
        return [self._configuration(kind, cell) for cell in every_cell for kind in self.arms]

    def _configuration(self, kind: str, levels: Sequence[str]) -> Configuration:
        """Return one configuration in the cell with these levels, one for each dimension."""
        cell = dict(zip(self.cells, levels, strict=True))
        suffix = "".join(f"_{level}" for level in levels)
        settings: Settings = {**self.space, **self.arms[kind]}
        for dimension, level in cell.items():
            settings |= self.cells[dimension][level]
        space = {name: value for name, value in settings.items() if isinstance(value, Range)}
        return Configuration(
            name=kind + suffix,
            kind=kind,
            cell=cell,
            settings={name: value for name, value in settings.items() if name not in space},
            space=space,
            against=tuple(pair.against + suffix for pair in self.comparisons if pair.arm == kind),
        )


def read_definition(path: Path) -> Definition:
    """Read a definition. Raises ConfigError if the file can't be read or isn't a definition."""
    definition: Definition = read_as(path, Definition, ConfigError, "correct it, or give another study")
    return definition
