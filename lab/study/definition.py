"""Define a study: what all configurations share, what sets each apart, what is tuned, and what is compared.

A definition is a file in lab/studies. Settings are named as in --set (`optimizer.beta1`). A setting whose value has
`low` and `high` is tuned within that range.
"""

import math
from collections.abc import Mapping, Sequence
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


class Range(Section):
    """Values that tuning may try, on a logarithmic scale."""

    low: PositiveFloat
    high: PositiveFloat
    one_minus: bool = False
    """Whether the bounds are those of one minus the value, as fits betas."""

    def value(self, drawn: float) -> float:
        """Return the setting's value for one between the bounds, and the reverse."""
        return 1 - drawn if self.one_minus else drawn

    def place(self, value: float) -> float:
        """Return where a value lies, 0 at `low` and 1 at `high`."""
        return math.log(self.value(value) / self.low, self.high / self.low)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}; exchange them")
        return self


Settings = dict[str, Annotated[Range | Any, Field(union_mode="left_to_right")]]


class Tuning(Section):
    """The budget of every configuration."""

    trials: Count
    """Values tried: half at random, the same for all configurations of a cell, half proposed by Optuna's TPE."""
    seeds: Count = 1
    """Runs of each; their mean counts, and the first that misses the target ends the trial."""
    patience: Annotated[float, Field(ge=1)]
    """A run stops at this multiple of the samples of the configuration's best, and counts as missing the target."""
    at_least: str | None = None
    """A tuned value below which no run's samples count. With `decay_samples`, a run counts until its target is reached
    and its decay is over, so that the best decays end near the target."""


class Pair(Section):
    """Two configurations whose difference the study reports, in every cell; the file calls a configuration an arm."""

    arm: str
    against: str


@dataclass(frozen=True)
class Configuration:
    """What a study compares: one of the definition's `arms` in one cell."""

    name: str
    kind: str
    """Its name in the definition, without the cell."""
    cell: Mapping[str, str]
    """Level by dimension."""
    settings: dict[str, Any]
    """What sets it apart; its rows repeat these."""
    space: Mapping[str, Range]
    against: tuple[str, ...]
    """Names of the configurations that it is compared with."""


class Definition(Section):
    """One study."""

    question: str
    limits: tuple[str, ...] = ()
    """What its answer doesn't cover."""
    setting: dict[str, Any]
    """What every run trains: a setting of the made-up language (language_run.py)."""
    arms: Annotated[dict[str, Settings], Field(min_length=2)]
    """What sets each configuration apart, by its name."""
    cells: Annotated[dict[str, dict[str, Settings]], Field(default_factory=dict)]
    """Dimensions and their levels, such as ranks: all configurations are tuned and compared at each combination."""
    space: Annotated[dict[str, Range], Field(default_factory=dict)]
    """What is tuned for all configurations."""
    tuning: Tuning | None = None
    comparisons: tuple[Pair, ...] = ()
    equal_values: bool = False
    """Whether both sides of each comparison also run at the values tuned for either. A search of few runs finds better
    values for one configuration than for another by luck; at equal values only the configurations differ."""
    seeds: Count = 5
    """Runs of every configuration in the comparison."""

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
                raise ValueError("tuning: found ranges to tune and no budget; add trials and patience")
            return self
        least = self.tuning.at_least
        if least and not all(least in space for space in spaces):
            raise ValueError(f"tuning.at_least: {least} is not tuned in every arm; give it a range, or leave this out")
        return self

    def configurations(self) -> list[Configuration]:
        """Return every configuration in every cell, cell by cell."""
        every_cell = product(*self.cells.values())
        return [self._configuration(kind, cell) for cell in every_cell for kind in self.arms]

    def _configuration(self, kind: str, levels: Sequence[str]) -> Configuration:
        """Return one configuration in the cell of these levels, one of each dimension."""
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
    """Read a definition; raises ConfigError if the file can't be read or isn't one."""
    definition: Definition = read_as(path, Definition, ConfigError, "correct it, or give another study")
    return definition
