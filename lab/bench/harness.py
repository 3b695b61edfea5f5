"""Run a bench: alternate its configurations, then the table, the JSON and the record.

A bench is a module with options and a `measure` that names configurations, sizes and units; its last line makes it a
command of `bertbench lab`. A configuration is a function of the round's number: what is timed, or what times itself.
"""

import argparse
import json
import math
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from bertbench.cli.arguments import add_number, emit, seed, write_file
from bertbench.common.errors import ConfigError
from bertbench.common.markup import aligned
from bertbench.common.phase_clock import wait_for_device
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.machine.provenance import provenance

Name = TypeVar("Name", bound=Hashable)
Answer = TypeVar("Answer")
Number = tuple[str, int | None, str]
"""An option that takes a whole number of at least 1: its name, default and help."""

Adder = Callable[[argparse.ArgumentParser], None]
"""What adds options to a parser."""
Command = tuple[Adder, Callable[[argparse.Namespace], int]]
"""`add_arguments` and `run`, which a command's module has."""

CPU = torch.device("cpu")


@dataclass(frozen=True)
class BenchResult:
    """What a bench found."""

    content: object
    """What --json prints."""
    lines: Sequence[str]
    """What is printed otherwise."""
    more: Mapping[str, object] = field(default_factory=dict)
    """What only the record keeps."""
    code: int = 0


def command(
    measure: Callable[[argparse.Namespace, Progress], BenchResult | None],
    *numbers: Number,
    more: Sequence[Adder] = (),
    seeds: str = "",
) -> Command:
    """Return the command of a bench; `seeds` says what --seed seeds, if it has one.

    `measure` returns None on a machine that can't run it, after a message that says why.
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
            help="also write numbers, table, machine and commit, for results/bench/",
        )  # fmt: skip

    def run(arguments: argparse.Namespace) -> int:
        if getattr(arguments, "device", None) == "cuda" and not torch.cuda.is_available():
            raise ConfigError("--device cuda: found no GPU that torch can use; leave --device out")
        with Progress() as progress:
            measurement = measure(arguments, progress)
        if measurement is None:
            emit(arguments.json, [])
            return 0
        emit(arguments.json, measurement.content, "\n".join(measurement.lines))
        if arguments.record is not None:
            text = json.dumps(_record(measurement), indent=2, default=asdict)
            write_file(arguments.record, f"{text}\n", "--record")
        return measurement.code

    return add_arguments, run


def option(*names: str, **settings: Any) -> Adder:
    """Return what adds an option, given as to `add_argument`."""
    return methodcaller("add_argument", *names, **settings)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device, which `command` checks."""
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default cpu)")


def machine_name(device: torch.device) -> str:
    """Return the name of the GPU or of the processor."""
    return torch.cuda.get_device_name() if device.type == "cuda" else processor()


def _record(found: BenchResult) -> dict[str, object]:
    """Return what --record writes: the command without --record, --out and --json, its origin, the results."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--record")
    parser.add_argument("--out")
    parser.add_argument("--json", action="store_true")
    return {
        "command": shlex.join(["bertbench", *parser.parse_known_args(sys.argv[1:])[1]]),
        "measured": datetime.now(UTC).date().isoformat(),
        **provenance(),
        "printed": found.lines,
        "results": found.content,
        **found.more,
    }


def in_turns(
    configurations: Mapping[Name, Callable[[int], Answer]],
    rounds: int,
    warm_up: int = 0,
    progress: Progress | None = None,
    what: str = "",
) -> dict[Name, list[Answer]]:
    """Call each configuration once a round, in reverse order in every other round.

    Returns all answers without those of `warm_up`. Alternation lets the machine's other work and its drift affect all
    configurations alike.
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
    """Return how long a call and its work on the device take."""
    wait_for_device(device)
    began = time.perf_counter()
    take()
    wait_for_device(device)
    return 1e3 * (time.perf_counter() - began)


class MedianRatio(NamedTuple):
    """A quotient with its 95 % interval; None where too few measurements give none."""

    ratio: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        """Return ratio and interval."""
        return f"{self.ratio:.2f} x" + ("" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})")


def paired_ratio(dividends: Sequence[float], divisors: Sequence[float]) -> MedianRatio:
    """Return the median of dividends over divisors, measured in pairs, one of each in a round, by the sign test."""
    ratios = [dividend / divisor for dividend, divisor in zip(dividends, divisors, strict=True)]
    return MedianRatio(*median_interval(ratios))


def median_interval(values: Sequence[float], tests: int = 1) -> tuple[float, float | None, float | None]:
    """Return a median and its interval by the sign test, to four digits; None for the ends with too few values.

    The intervals of `tests` medians hold together with 95 % (Bonferroni); one takes at least 6 values.
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second; a bench's processes don't need it

    rounded = [round(value, 4) for value in values]
    interval = stats.quantile_test(rounded, p=0.5).confidence_interval(1 - 0.05 / tests)
    low, high = (None if math.isnan(end) else float(end) for end in interval)
    return statistics.median(rounded), low, high


def table_lines(rows: Sequence[object], columns: Mapping[str, str]) -> list[str]:
    """Return a head and a line a row; a column maps its head to a format of the row `0`, as in `{0.name}`.

    The columns before the first number, whose format has a colon, are aligned to the left; a number that is None is
    shown as -.
    """
    forms = list(columns.values())
    left = len([*takewhile(lambda form: ":" not in form, forms)])
    cells = []
    for row in rows:
        cells.append([_cell(form, row) for form in forms])
    return aligned([*columns], cells, left)


def _cell(form: str, row: object) -> str:
    try:
        return form.format(row)
    except TypeError:  # None takes no format of numbers
        return "-"
