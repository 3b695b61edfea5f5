"""A whole system file, validated: one machine, one run."""

from typing import Self

from pydantic import model_validator

from bertbench.config.checks import problems
from bertbench.config.settings import Settings


class System(Settings):
    """One system file: settings that fit together. What follows from other settings is not typed in."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if found := [problem.text for problem in problems(self)]:
            raise ValueError("\n".join(found))
        return self
