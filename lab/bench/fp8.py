"""`lab fp8`: train to the target in fp8 and in bf16 with the same seeds, and compare the samples that they need.

Both runs of a seed begin with the same weights and read the same batches. The ratio of their samples is taken seed by
seed, and averaged over the seeds as logarithms, with Student's interval: equal formats give a ratio of 1. Runs evaluate
every 640 samples, since at the system's own interval both would often need the same number. The journal keeps every
finished run, so more seeds can be added until the interval is narrow enough.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.cli.arguments import SYSTEM_HELP, add_system_arguments
from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.common.section import Section
from bertbench.config import load_system
from bertbench.loading.inputs import open_data
from bertbench.machine.processor import processor
from bertbench.results.files import ResultFiles
from lab.bench.harness import BenchResult, alternate, command, option, table_lines
from lab.bench.means import geometric_mean
from lab.bench.whole_run import train_here
from lab.journal import Journal

_FORMATS = ("bf16", "fp8")
_INTERVAL = 640
_COLUMNS = {
    "seed": "{0.seed:d}", "bf16, samples": "{0.samples_bf16:,d}", "fp8, samples": "{0.samples_fp8:,d}",
    "ratio": "{0.ratio:.3f}", "bf16, s": "{0.seconds_bf16:,.1f}", "fp8, s": "{0.seconds_fp8:,.1f}",
}  # fmt: skip


class CommonSettings(Section):
    """What a journal's runs have in common; another system needs a folder of its own."""

    system: dict[str, Any]


class Pair(NamedTuple):
    """Both runs of a seed; None as samples where a run missed its target."""

    seed: int
    samples_bf16: int | None
    samples_fp8: int | None
    seconds_bf16: float
    seconds_fp8: float

    @property
    def ratio(self) -> float | None:
        """Return fp8's samples over bf16's; None if a run missed the target."""
        if self.samples_bf16 is None or self.samples_fp8 is None:
            return None
        return self.samples_fp8 / self.samples_bf16


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Train every pair. Raises RunError if a run fails, or refuses its format."""
    shared = (*arguments.overrides, f"evaluation.interval_samples={_INTERVAL}", "checkpoint.final_weights=false")
    system = load_system(arguments.system, (*shared, "precision.compute=fp8"))
    open_data(system)  # report bad data before minutes of training
    definition = CommonSettings(system=system.model_dump(mode="json"))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(arguments.out or Path(folder), definition)

        def run(number_format: str, number: int) -> dict[str, Any]:
            key = {"precision": number_format, "seed": number + 1}
            settings = (*shared, f"precision.compute={number_format}")
            record = journal.trial(key, lambda: _trained(arguments.system, settings, number_format, number + 1))
            progress.message(f"seed {number + 1}, {number_format}: {record['samples']:,} samples")
            return record

        runs = alternate({name: partial(run, name) for name in _FORMATS}, arguments.seeds)
    pairs = list(_pairs(runs))
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    ratio, low, high = geometric_mean(ratios)
    answer = {
        "pairs": [{**pair._asdict(), "ratio": pair.ratio} for pair in pairs],
        "ratio": ratio, "low": low, "high": high, "missed": len(pairs) - len(ratios),
    }  # fmt: skip
    head = f"{system.name} on {processor()}, evaluated every {_INTERVAL} samples"
    lines = [head, *table_lines(pairs, _COLUMNS), _summary(ratio, low, high, len(ratios), len(pairs))]
    return BenchResult(answer, lines, {"origins": journal.origins, "system": definition.system})


def _trained(system: str, settings: tuple[str, ...], number_format: str, seed: int) -> dict[str, Any]:
    """Train to the target. Raises RunError if the run computed in another format than asked for."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run_0.txt"
        trained = train_here(system, settings, seed, log)
        arithmetic = json.loads(ResultFiles(log).arithmetic.read_text(encoding="utf-8"))
    if arithmetic["precision"] != number_format:
        raise RunError(f"seed {seed}: the run refused {number_format}: {'; '.join(arithmetic['refused'])}")
    return trained._asdict()


def _pairs(runs: dict[str, list[dict[str, Any]]]) -> Iterator[Pair]:
    for seed, (in_bf16, in_fp8) in enumerate(zip(*(runs[name] for name in _FORMATS), strict=True), start=1):
        yield Pair(
            seed=seed,
            samples_bf16=in_bf16["samples"] if in_bf16["reached"] else None,
            samples_fp8=in_fp8["samples"] if in_fp8["reached"] else None,
            seconds_bf16=in_bf16["seconds"],
            seconds_fp8=in_fp8["seconds"],
        )


def _summary(ratio: float | None, low: float | None, high: float | None, counted: int, pairs: int) -> str:
    """Return the answer in a line."""
    if ratio is None:
        return f"none of {pairs} pairs reached the target"
    if low is None or high is None:
        interval = "one pair has no interval"
    else:
        interval = f"95 % from {low:.3f} to {high:.3f}, half-width {(high - low) / 2:.1%}"
    missed = "" if counted == pairs else f"; {pairs - counted} more missed the target"
    return f"fp8 needs {ratio:.3f} of bf16's samples: {interval}; {counted} pairs{missed}"


add_arguments, run = command(
    measure, ("--seeds", 10, "pairs of runs"),
    more=[
        option("system", nargs="?", default="cpu_demo", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default cpu_demo)"),
        option(
            "--out", type=Path, metavar="FOLDER",
            help="folder of finished runs; a stopped comparison resumes there (default: none are kept)",
        ),
        add_system_arguments,
    ],
)  # fmt: skip
