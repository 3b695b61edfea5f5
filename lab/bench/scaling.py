"""`bertbench lab scaling`: list speed-up and efficiency by number of ranks: measured, computed, and published.

Efficiency is the rate per rank, divided by the rate per rank in the smallest run of the same series. Speed-up is
efficiency times ranks. Measured rows come from the records in results/, computed rows from the model of `bertbench
estimate`, and published rows from MLPerf's logs (common/published_results.py) and from Megatron-LM's authors.

Megatron-LM's model grows with the number of GPUs, so its rates are FLOP/s. All other rates are samples/s of one model.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertbench.cli.arguments import emit
from bertbench.common.published_results import PublishedResult
from bertbench.plan.calibrate import calibration
from bertbench.plan.calibrating_results import GPUS_OF_NODE, Method, calibrating
from bertbench.plan.step_time import Workload, run_seconds
from lab.bench.harness import table_lines

_BENCHES = Path(__file__).parents[2] / "results" / "bench"
_NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_SAMPLES_OF_GPU = 16  # in the paper's run on 1,024 GPUs
_GLOBAL_BATCH = 16_384
_METHOD = Method("planned", overlap=True)  # the default of data.balance, and clipping that overlaps
_RANKS_OF_OVERLAP = 2

_COLUMNS = {
    "evidence": "{0.evidence}",
    "series": "{0.series}",
    "ranks": "{0.ranks:,}",
    "samples/s": "{0.samples_per_s:,.0f}",
    "speed-up": "{0.speed_up:,.1f}",
    "efficiency": "{0.efficiency:.1%}",
}
_NOTES = (
    "measured: CPU ranks on virtual hosts of one machine; the time of a step without sums / the time with sums",
    "computed: steps of BERT-Large on DGX A100s with `planned` balance, calibrated on the published rows",
    "published: whole runs, the fastest result for each number of A100s; their methods and batches differ",
    "published, Megatron-LM: FLOP/s per V100, not samples/s; the model grows with the GPUs, from 1.2 B parameters",
)

_SHOEYBI_2019 = "arXiv 1909.08053, section 5.1.1"
_VERSION_1 = "nv-adlr.github.io/MegatronLMV1, table 1"
_MEGATRON = (
    ("1.2 B", 1, 1.0, _SHOEYBI_2019),
    ("8.3 B, tensor 8", 8, 0.77, _SHOEYBI_2019),
    ("8.3 B, tensor 8 x data 64", 512, 0.74, _SHOEYBI_2019),
    ("1.2 B", 1, 1.0, _VERSION_1),
    ("2.0 B, tensor 2", 2, 0.907, _VERSION_1),
    ("4.2 B, tensor 4", 4, 0.865, _VERSION_1),
    ("8.7 B, tensor 8", 8, 0.796, _VERSION_1),
)
"""Model, GPUs, efficiency and source, as the authors' text or table states them. Of the bars in figure 5 of the 2019
paper, only those that its text repeats are included."""
_MEGATRON_NAMES = {_SHOEYBI_2019: "Megatron-LM 2019", _VERSION_1: "Megatron-LM 1.0, 2020"}


@dataclass(frozen=True)
class Scaling:
    """One row: a number of ranks in a series."""

    evidence: str
    """`measured`, `computed` or `published`."""
    series: str
    """What is the same in all rows, or whose run it is."""
    ranks: int
    samples_per_s: float | None
    """The rate of all ranks together; None if the record contains only times of steps."""
    efficiency: float
    source: str
    """The source: a record, a command, a round with its system, or a page."""
    name: str = ""
    """The project that published the row; empty for our rows and MLPerf's."""

    @property
    def speed_up(self) -> float:
        """Return how many times as fast as one rank all ranks are."""
        return self.efficiency * self.ranks


def scalings() -> list[Scaling]:
    """Return the rows of all series, the measured ones first."""
    return [*_measured(), *_weak(), *_strong(), *_published(), *_megatron()]


def _measured() -> Iterator[Scaling]:
    """Yield a row with two ranks for each recorded bandwidth: `lab overlap` takes each step with and without sums."""
    for path in sorted(_BENCHES.glob("*/overlap.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for row in record["results"]:
            if "less_ms" not in row:  # an old record of five steps, without intervals
                continue
            if row["mode"] in ("before", "bucket"):
                efficiency = 1 - row["exposed_ms"] / row["step_ms"]
                series = f"clip.mode {row['mode']}, {row['bandwidth_mbit']:,.0f} Mbit/s"
                source = f"results/bench/{path.parent.name}/{path.name}"
                yield Scaling("measured", series, _RANKS_OF_OVERLAP, None, efficiency, source)


def _weak() -> Iterator[Scaling]:
    batches = {nodes: _SAMPLES_OF_GPU * GPUS_OF_NODE * nodes for nodes in _NODES}
    return _computed(f"weak: {_SAMPLES_OF_GPU} samples per GPU", batches)


def _strong() -> Iterator[Scaling]:
    return _computed(f"strong: batch {_GLOBAL_BATCH:,}", dict.fromkeys(_NODES, _GLOBAL_BATCH))


def _computed(series: str, batches: dict[int, int]) -> Iterator[Scaling]:
    """Yield a row for each number of nodes; `batches` holds the global batch of each."""
    rates = {nodes: _rate(nodes, batch) for nodes, batch in batches.items()}
    for nodes, rate in rates.items():
        efficiency = rate / (nodes * rates[1])
        yield Scaling("computed", series, GPUS_OF_NODE * nodes, rate, efficiency, "bertbench estimate")


def _rate(nodes: int, global_batch_size: int) -> float:
    """Return the samples/s in steps, without start-up and evaluations."""
    work = Workload(
        gpu="a100",
        gpus=GPUS_OF_NODE * nodes,
        nodes=nodes,
        global_batch_size=global_batch_size,
        samples=global_batch_size,
        method=_METHOD,
    )
    parts = run_seconds(work, calibration())
    return global_batch_size / (parts.compute + parts.imbalance + parts.communication + parts.waiting)


def _published() -> Iterator[Scaling]:
    """Yield, for each number of GPUs, the fastest result on nodes of 8 A100s."""
    fastest: dict[int, PublishedResult] = {}
    for row in calibrating():
        assert row.accelerators is not None
        best = fastest.get(row.accelerators)
        if best is None or _run_rate(row) > _run_rate(best):
            fastest[row.accelerators] = row
    of_one_node = _run_rate(fastest[GPUS_OF_NODE]) / GPUS_OF_NODE
    for gpus, row in sorted(fastest.items()):
        rate = _run_rate(row)
        series = f"{row.submitter}, batch {row.global_batch_size:,}"
        yield Scaling("published", series, gpus, rate, rate / (gpus * of_one_node), f"{row.rounds}, {row.system}")


def _megatron() -> Iterator[Scaling]:
    for model, gpus, efficiency, source in _MEGATRON:
        name = _MEGATRON_NAMES[source]
        yield Scaling("published", f"{name}: {model}", gpus, None, efficiency, source, name)


def _run_rate(row: PublishedResult) -> float:
    return row.samples_to_converge / row.seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    rows = scalings()
    content = [{**vars(row), "speed_up": row.speed_up} for row in rows]
    emit(arguments.json, content, *table_lines(rows, _COLUMNS), *_NOTES)
    return 0
