"""Start a job with another launcher: choose its commands, and print them for a shell or run the first one."""

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Literal

from bertbench.common.children import dying_with_us
from bertbench.common.errors import ConfigError
from bertbench.common.reads import Reads, Unread
from bertbench.common.terminal import shell_word
from bertbench.launch.command_lines import (
    CommandLine,
    Job,
    docker_command,
    slurm_command,
    torchrun_lines,
    torchrun_variables,
)

Place = Literal["local", "slurm", "docker"]
"""Where ranks run. `local` means that torchrun starts them, with a command for each node."""

ON_SLURM = Reads(
    "launch --on slurm",
    exceptions={
        "launch.port": Unread("the job chooses its port; MASTER_PORT in the job's environment sets another"),
    },
)
"""What a job of Slurm adds to what a run reads."""


@dataclass(frozen=True)
class JobStart:
    """What starts a job."""

    commands: list[CommandLine]
    """One command, or for torchrun one for each node."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables that a shell exports before the commands."""

    @property
    def lines(self) -> list[list[str]]:
        """Return the words of each command, with the variables that it reads."""
        return [command.line() for command in self.commands]

    def text(self) -> str:
        """Return the commands for a shell."""
        lines = [" ".join(map(_shell_word, words)) for words in self.lines]
        if self.variables:
            pairs = [f"{name}={value}" for name, value in self.variables.items()]
            lines.insert(0, f"export {shlex.join(pairs)}")
        return "\n".join(lines)

    def run(self) -> int:
        """Run the first command and return its exit code. Raises ConfigError if this machine doesn't have it."""
        command = self.commands[0]
        try:
            done = subprocess.run(
                command.words, check=False, env={**os.environ, **command.variables},
                preexec_fn=dying_with_us(signal.SIGTERM),  # on which docker stops its container
            )  # fmt: skip
        except FileNotFoundError as error:
            raise ConfigError(
                f"found no {command.words[0]} on this machine; start this where it is installed, or see --dry-run"
            ) from error
        return done.returncode


def job_start(job: Job, place: Place) -> JobStart:
    """Return what starts a job in a place."""
    match place:
        case "slurm":
            return JobStart([slurm_command(job)])
        case "docker":
            return JobStart([docker_command(job)])
        case "local":
            commands = [CommandLine(words, {}) for words in torchrun_lines(job)]
            return JobStart(commands, torchrun_variables())


def _shell_word(word: str) -> str:
    """Return a word as a shell takes it. Only $MASTER_ADDR isn't quoted, because the user sets it."""
    return word if word.endswith("=$MASTER_ADDR") else shell_word(word, sys.stdout.encoding)
