"""`lab number-formats`: train to the target in two number formats, and compare the samples that they need.

Both runs of a seed start from the same weights and read the same batches. The ratio of their samples is taken seed by
seed, and its logarithms are averaged over the seeds, with Student's interval: a format that costs nothing gives a ratio
of 1. Runs evaluate every 640 samples, because at the system's own interval both would often need the same number. The
journal keeps every finished run, so more seeds can be added until the interval is narrow enough.
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
from bertbench.common.intervals import of_geometric_mean
from bertbench.common.progress import Progress
from bertbench.common.section import Section
from bertbench.config import load_system
from bertbench.loading.inputs import open_data
from bertbench.machine.processor import processor
from bertbench.results.files import ResultFiles
from lab.bench.harness import BenchResult, alternate, command, option, table_lines
from lab.bench.whole_run import train_here
from lab.journal import Journal

_INTERVAL = 640


class FormatComparison(NamedTuple):
    """Two values of a setting that chooses a number format."""

    setting: str
    baseline: str
    changed: str
    recorded_as: str
    """Name of the format in a run's arithmetic file, and in the journal."""
    common: tuple[str, ...] = ()
    """Settings of both runs."""


COMPARISONS = {
    "fp8": FormatComparison("precision.compute", baseline="bf16", changed="fp8", recorded_as="precision"),
    "residual": FormatComparison(
        "precision.residual",
        baseline="fp32",
        changed="bf16",
        recorded_as="residual",
        common=("precision.compute=bf16",),
    ),
}
"""By the name of the changed format on the command line."""


class CommonSettings(Section):
    """What all runs of a journal have in common; another system needs another folder."""

    system: dict[str, Any]


class Pair(NamedTuple):
    """Both runs of a seed; None as samples where a run missed its target."""

    seed: int
    baseline_samples: int | None
    changed_samples: int | None
    baseline_seconds: float
    changed_seconds: float

    @property
    def ratio(self) -> float | None:
        """Return the changed format's samples over the baseline's; None if a run missed the target."""
        if self.baseline_samples is None or self.changed_samples is None:
            return None
        return self.changed_samples / self.baseline_samples


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Train every pair. Raises RunError if a run fails, or computes in another format than it was given."""
    compared = COMPARISONS[arguments.format]
    common = (
        *arguments.overrides,
        f"evaluation.interval_samples={_INTERVAL}",
        "checkpoint.final_weights=false",
        *compared.common,
    )
    system = load_system(arguments.system, (*common, f"{compared.setting}={compared.changed}"))
    open_data(system)  # report bad data before minutes of training
    definition = CommonSettings(system=system.model_dump(mode="json"))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(arguments.out or Path(folder), definition)

        def run(number_format: str, number: int) -> dict[str, Any]:
            seed = number + 1
            settings = (*common, f"{compared.setting}={number_format}")
            record = journal.trial(
                {compared.recorded_as: number_format, "seed": seed},
                lambda: _trained(arguments.system, settings, compared, number_format, seed),
            )
            progress.message(f"seed {seed}, {number_format}: {record['samples']:,} samples")
            return record

        formats = (compared.baseline, compared.changed)
        runs = alternate({name: partial(run, name) for name in formats}, arguments.seeds)
    pairs = list(_pairs(runs[compared.baseline], runs[compared.changed]))
    ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
    ratio, low, high = of_geometric_mean(ratios) if ratios else (None, None, None)
    answer = {
        "setting": compared.setting, "baseline": compared.baseline, "changed": compared.changed,
        "pairs": [{**pair._asdict(), "ratio": pair.ratio} for pair in pairs],
        "ratio": ratio, "low": low, "high": high, "missed": len(pairs) - len(ratios),
    }  # fmt: skip
    lines = [
        f"{system.name} on {processor()}, evaluated every {_INTERVAL} samples",
        *table_lines(pairs, _columns(compared)),
        f"{compared.setting} {compared.changed} needs {_summary(ratio, low, high, len(ratios), compared.baseline)}",
    ]
    if answer["missed"]:
        lines.append(f"{answer['missed']} of {len(pairs)} pairs missed the target")
    return BenchResult(answer, lines, {"origins": journal.origins, "system": definition.system})


def _trained(
    system: str, settings: tuple[str, ...], compared: FormatComparison, number_format: str, seed: int
) -> dict[str, Any]:
    """Train to the target. Raises RunError if the run computed in another format than it was given."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run_0.txt"
        trained = train_here(system, settings, seed, log)
        arithmetic = json.loads(ResultFiles(log).arithmetic.read_text(encoding="utf-8"))
    taken = arithmetic[compared.recorded_as]
    if taken != number_format:
        reasons = "; ".join(arithmetic["refused"]) or "no reason recorded"
        raise RunError(
            f"seed {seed}: expected {compared.setting} {number_format}, but the run took {taken} ({reasons}); "
            "compare the formats on a machine that computes in both"
        )
    return trained._asdict()


def _pairs(baselines: list[dict[str, Any]], changed_runs: list[dict[str, Any]]) -> Iterator[Pair]:
    for seed, (baseline, changed) in enumerate(zip(baselines, changed_runs, strict=True), start=1):
        yield Pair(
            seed=seed,
            baseline_samples=baseline["samples"] if baseline["reached"] else None,
            changed_samples=changed["samples"] if changed["reached"] else None,
            baseline_seconds=baseline["seconds"],
            changed_seconds=changed["seconds"],
        )


def _columns(compared: FormatComparison) -> dict[str, str]:
    """Return the table's heads and the format of each column."""
    return {
        "seed": "{0.seed:d}",
        f"{compared.baseline}, samples": "{0.baseline_samples:,d}",
        f"{compared.changed}, samples": "{0.changed_samples:,d}",
        "ratio": "{0.ratio:.3f}",
        f"{compared.baseline}, s": "{0.baseline_seconds:,.1f}",
        f"{compared.changed}, s": "{0.changed_seconds:,.1f}",
    }


def _summary(ratio: float | None, low: float | None, high: float | None, pairs: int, baseline: str) -> str:
    """Return the answer in a line."""
    if ratio is None:
        return "an unknown number of samples: no pair reached the target"
    found = f"{ratio:.3f} times {baseline}'s samples"
    if low is None or high is None:
        return f"{found} (one pair, which gives no interval)"
    return f"{found} (95 % from {low:.3f} to {high:.3f}, half-width {(high - low) / 2:.1%}, {pairs} pairs)"


add_arguments, run = command(
    measure, ("--seeds", 10, "pairs of runs"),
    more=[
        option(
            "format", choices=[*COMPARISONS], metavar="FORMAT",
            help="fp8: products in fp8, compared with bf16; residual: hidden states in bf16, compared with fp32",
        ),
        option("system", nargs="?", default="cpu_demo", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default cpu_demo)"),
        option(
            "--out", type=Path, metavar="FOLDER",
            help="folder of finished runs; a stopped comparison resumes there (default: none are kept)",
        ),
        add_system_arguments,
    ],
)  # fmt: skip
