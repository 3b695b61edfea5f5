"""`bench links`: ways to train over a slow link, by time to the target or by samples a second.

Two ranks on two virtual hosts do whole runs of a system, one for each way and link: evaluations, log and metrics as in
any run. Clocks run from run_start to run_stop.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bertbench.bench.network import limit_bandwidth, on_two_hosts
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from bertbench.results.progress import RunProgress
from bertbench.training.inputs import open_data
from bertbench.training.train import train
from compliance.log import read_events
from compliance.run import RunFacts

RANKS = 2
EVERY_STEP = "every_step"
WAYS: dict[str, tuple[str, ...]] = {
    EVERY_STEP: (),
    "int8": ("communication.compression=int8",),
    "delayed": ("sync.method=delayed",),
    "local_sgd": ("sync.method=local_sgd",),
    "diloco": ("sync.method=diloco",),
}
"""By name: settings over the system's own."""
# A run that measured its number format anew could take another one, and other samples to the target.
_ALIKE = ("precision.compute=fp32", "compute.products=torch", "checkpoint.final_weights=false")


@dataclass(frozen=True)
class Row:
    """One run over one link."""

    way: str
    mbit: float
    latency_ms: float
    """One way."""
    samples_per_s: float
    """Of the whole run; with a given number of steps, without its evaluation."""
    samples: int
    reached: bool
    """Whether the run reached its target; never with a given number of steps."""
    seconds: float
    """From run_start to run_stop, less the evaluation where there is only one, after a given number of steps."""


@dataclass(frozen=True)
class Contest:
    """What every way trains."""

    system: str
    overrides: tuple[str, ...]
    ways: tuple[str, ...]
    seed: int
    steps: int | None
    """Steps of a run without an evaluation on the way; None: to the target."""

    def systems(self) -> dict[str, System]:
        """Return the system of each way; raises ConfigError or DataError if one can't train on two ranks."""
        made = {way: self._system(way) for way in self.ways}
        for system in made.values():
            if system.world_size != RANKS or system.launch.device != "cpu":
                raise ConfigError(
                    f"{system.name}: found {system.world_size} ranks on {system.launch.device}, expected {RANKS} on "
                    "cpu, one for each virtual host; choose another --system"
                )
            open_data(system)
        return made

    def _system(self, way: str) -> System:
        always = (*_ALIKE, *WAYS[way], *self.overrides)
        if self.steps is None:
            return load_system(self.system, always)
        limit = self.steps * load_system(self.system, always).global_batch_size
        short = (f"evaluation.max_samples={limit}", f"evaluation.interval_samples={limit}")
        return load_system(self.system, (*always, "evaluation.target=0.999999", *short))


def measure(contest: Contest, mbits: Sequence[float], latencies_ms: Sequence[float]) -> list[Row]:
    """Run every way over every link; needs root. Raises ConfigError or DataError as `Contest.systems`."""
    contest.systems()
    rows: list[Row] = []
    for latency_ms in latencies_ms:
        rows += on_two_hosts(_on_rank, contest, mbits, latency_ms, latency_ms=latency_ms)
    return rows


def crossings(rows: Sequence[Row]) -> Iterator[tuple[str, float, float]]:
    """Yield (way, latency, Mbit/s) of each link at which a way takes as long as every step.

    Between two measured bandwidths, seconds are taken as linear in 1 / bandwidth.
    """
    cells = {(row.way, row.latency_ms, row.mbit): row for row in rows}
    for way, latency_ms in dict.fromkeys((row.way, row.latency_ms) for row in rows):
        mbits = sorted({row.mbit for row in rows})
        pairs = [(cells.get((way, latency_ms, mbit)), cells.get((EVERY_STEP, latency_ms, mbit))) for mbit in mbits]
        gaps = [
            (1 / own.mbit, cost(own) - cost(plain))
            for own, plain in pairs
            if own and plain and own is not plain and own.reached == plain.reached
        ]
        for (x, gap), (next_x, next_gap) in pairwise(gaps):
            if (gap < 0) != (next_gap < 0):
                yield way, latency_ms, 1 / (x + (next_x - x) * gap / (gap - next_gap))


def cost(row: Row) -> float:
    """Return seconds to the target, or where none was to be reached, seconds a sample."""
    return row.seconds if row.reached else 1 / row.samples_per_s


def _on_rank(world: World, contest: Contest, mbits: Sequence[float], latency_ms: float) -> list[Row]:
    rows, progress, systems = [], Progress(enabled=world.leads), contest.systems()
    with tempfile.TemporaryDirectory() as folder:
        for mbit in mbits:
            limit_bandwidth(mbit)
            for way, system in systems.items():
                log = Path(folder) / f"{way}_{mbit:g}.txt"
                files = ResultFiles(log) if world.leads else None
                if files is not None:
                    files.describe(system, contest.seed)
                run = train(system, world, contest.seed, files, RunProgress(system, enabled=False))
                if files is None:
                    continue
                row = _row(way, mbit, latency_ms, RunFacts(read_events(log)), contest.steps is not None)
                rows.append(row)
                progress.message(
                    f"{mbit:g} Mbit/s, {latency_ms:g} ms: {way}: {row.samples:,} samples in {row.seconds:.1f} s, "
                    f"{row.samples_per_s:,.0f} a second, accuracy {run.evaluations[-1][1]:.3f}"
                )
    return rows


def _row(way: str, mbit: float, latency_ms: float, facts: RunFacts, steps_only: bool) -> Row:
    assert facts.time_to_train_s is not None, "a run that ends in order has a start and a stop"
    seconds = facts.time_to_train_s - (facts.evaluation_s if steps_only else 0.0)
    samples = int(facts.samples or 0)
    return Row(
        way, mbit, latency_ms, round(samples / seconds, 1), samples, facts.status == "success", round(seconds, 3)
    )
