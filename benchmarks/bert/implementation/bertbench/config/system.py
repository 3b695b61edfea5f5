"""A whole system file, validated: one machine, one run."""

from typing import Self

from pydantic import PrivateAttr, model_validator

from bertbench.config.checks import problems
from bertbench.config.settings import Settings


class System(Settings):
    """One system file: settings that fit together. What follows from other settings is not typed in."""

    _path: str | None = PrivateAttr(default=None)

    @property
    def argument(self) -> str:
        """What a command calls this system: its file's path, or its name where it comes with the project."""
        return self._path or self.name

    def at_path(self, path: str) -> Self:
        """Return this system as the one that commands find at `path`."""
        copy = self.model_copy()
        copy._path = path
        return copy

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if found := [problem.text for problem in problems(self)]:
            raise ValueError("\n".join(found))
        return self
