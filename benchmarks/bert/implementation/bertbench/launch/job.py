"""A job that `bertbench launch` starts by another launcher; launchers return commands and run none themselves.

All of them call run_and_time.sh, whose ranks meet as distributed/rendezvous.py describes.
"""

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from bertbench.common.paths import data_folder, runs_folder
from bertbench.config import System
from bertbench.launch.variables import RECORD, Variables

_OF_LIBRARIES = ("NCCL_", "GLOO_")


@dataclass(frozen=True)
class Job:
    """Runs of a system, as the user asked for them."""

    system: System
    name_or_path: str
    options: list[str]
    """For `bertbench train`: overrides and seed."""
    runs: int
    variables: Variables = field(default_factory=Variables)
    """What became of the variables that the user exported."""


class Command(NamedTuple):
    """A command that works in any shell: its words, and the variables that it reads."""

    words: list[str]
    variables: dict[str, str]

    def line(self) -> list[str]:
        """Return the words of the whole command."""
        pairs = [f"{name}={value}" for name, value in self.variables.items()]
        return ["env", *pairs, *self.words] if pairs else self.words


def site_variables(*names: str, prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """Return which of these variables the user has exported, and those of NCCL and gloo; an empty one isn't set."""
    prefixes = (*prefixes, *_OF_LIBRARIES)
    return {
        name: value for name, value in sorted(os.environ.items())
        if value and (name in names or name.startswith(prefixes))
    }  # fmt: skip


def folders() -> dict[str, str]:
    """Return the variables by which other processes find data and results."""
    return {"DATADIR": str(data_folder("").absolute()), "LOGDIR": str(runs_folder().absolute())}


def record(job: Job) -> dict[str, str]:
    """Return the variable that says what this process has honoured, so that the job honours nothing again."""
    return {RECORD: job.variables.record()}
