"""Run a bench: alternate its configurations, then print a table or JSON and write a record.

A bench is a module with options, and with a function `measure` that names configurations, sizes and units. Its last
line makes it a command of `bertbench lab`. A configuration is a function that takes the round's number; it is timed, or
it times itself.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

import torch

from bertbench.cli.arguments import add_number, emit, seed, write_file
from bertbench.common.errors import ConfigError
from bertbench.common.intervals import Interval, of_median
from bertbench.common.phase_clock import wait_for_device
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.machine.provenance import provenance
from lab.records import record_text

Name = TypeVar("Name", bound=Hashable)
Answer = TypeVar("Answer")
Number = tuple[str, int | None, str]
"""An option whose value is a whole number of at least 1: its name, default and help."""

Adder = Callable[[argparse.ArgumentParser], None]
"""Adds options to a parser."""
Command = tuple[Adder, Callable[[argparse.Namespace], int]]
"""The functions `add_arguments` and `run` of a command's module."""

CPU = torch.device("cpu")


@dataclass(frozen=True)
class BenchResult:
    """The result of a bench."""

    content: object
    """The content that --json prints."""
    lines: Sequence[str]
    """The lines that are printed without --json."""
    more: Mapping[str, object] = field(default_factory=dict)
    """Content that only the record contains."""
    code: int = 0


def command(
    measure: Callable[[argparse.Namespace, Progress], BenchResult | None],
    *numbers: Number,
    more: Sequence[Adder] = (),
    seeds: str = "",
) -> Command:
    """Return the command of a bench; `seeds` says what --seed determines, None if there is no such option.

    On a machine that can't run it, `measure` prints a message that says why, and returns None.
    """

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        for add in more:
            add(parser)
        for name, default, text in numbers:
            shown = "" if default is None else f" (default {default:,})"
            add_number(parser, name, "N", text + shown, default=default)
        if seeds:
            parser.add_argument("--seed", type=seed, default=1, metavar="N", help=f"seed of {seeds} (default 1)")
        parser.add_argument(
            "--record", type=Path, metavar="FILE",
            help="also write a record for results/bench/: numbers, machine and commit",
        )  # fmt: skip

    def run(arguments: argparse.Namespace) -> int:
        if getattr(arguments, "device", None) == "cuda" and not torch.cuda.is_available():
            raise ConfigError("--device cuda: found no GPU that torch can use; leave out --device")
        with Progress() as progress:
            measurement = measure(arguments, progress)
        if measurement is None:
            emit(arguments, [])
            return 0
        emit(arguments, measurement.content, "\n".join(measurement.lines))
        if arguments.record is not None:
            write_file(arguments.record, record_text(_record(measurement)), "--record")
        return measurement.code

    return add_arguments, run


def option(*names: str, **settings: Any) -> Adder:
    """Return a function that adds an option; the arguments are those of `add_argument`."""
    return methodcaller("add_argument", *names, **settings)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device, which `command` checks."""
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default cpu)")


def machine_name(device: torch.device) -> str:
    """Return the name of the GPU or processor."""
    return torch.cuda.get_device_name() if device.type == "cuda" else processor()


def _record(found: BenchResult) -> dict[str, object]:
    """Return the content that --record writes: the command without --record, --out and --json, its origin, results."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--record")
    parser.add_argument("--out")
    parser.add_argument("--json", action="store_true")
    return {
        "command": shlex.join(["bertbench", *parser.parse_known_args(sys.argv[1:])[1]]),
        "measured": datetime.now(UTC).date().isoformat(),
        **provenance(),
        "results": found.content,
        **found.more,
    }


def alternate(
    configurations: Mapping[Name, Callable[[int], Answer]],
    rounds: int,
    warm_up: int = 0,
    progress: Progress | None = None,
    what: str = "",
) -> dict[Name, list[Answer]]:
    """Call each configuration once in every round, in reverse order in every other round.

    Return all answers except those of the `warm_up` rounds. Because configurations alternate, other work and drift of
    the machine affect all of them alike.
    """
    answers: dict[Name, list[Answer]] = {name: [] for name in configurations}
    total = warm_up + rounds
    calls = total * len(configurations)
    done = 0
    for number in range(total):
        names = list(configurations)
        if number % 2:
            names.reverse()
        for name in names:
            if progress is not None:
                progress.update(done, calls, f"{what}round {number + 1} of {total}, {name}")
            answer = configurations[name](number)
            done += 1
            if number >= warm_up:
                answers[name].append(answer)
    return answers


def milliseconds(take: Callable[[], object], device: torch.device = CPU) -> float:
    """Return the time that a call takes, including its work on the device."""
    wait_for_device(device)
    began = time.perf_counter()
    take()
    wait_for_device(device)
    return 1e3 * (time.perf_counter() - began)


class Ratio(Interval):
    """A ratio with its 95 % interval, which prints as a factor."""

    def __str__(self) -> str:
        """Return the ratio and its interval as text."""
        return f"{self.value:.2f} x" + ("" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})")


def paired_ratio(dividends: Sequence[float], divisors: Sequence[float]) -> Ratio:
    """Return the median ratio of pairs, one of each round, with its interval by the sign test."""
    ratios = [dividend / divisor for dividend, divisor in zip(dividends, divisors, strict=True)]
    return Ratio(*of_median(ratios))
