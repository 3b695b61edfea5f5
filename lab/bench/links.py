"""`lab links`: compare methods of training over a slow link, by time to the target or by samples a second.

Two ranks on two virtual hosts do whole runs of a system, one for each method and link: evaluations, log and metrics as
in any run. Times run from run_start to run_stop.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from bertbench.results.progress import RunProgress
from bertbench.training.inputs import open_data
from bertbench.training.train import train
from lab.bench.network import limit_bandwidth, on_two_hosts
from lab.bench.whole_run import Trained, read_run, steps_only

RANKS = 2
EVERY_STEP = "every_step"
WAYS: dict[str, tuple[str, ...]] = {
    EVERY_STEP: (),
    "int8": ("communication.compression=int8",),
    "topk": ("communication.compression=topk",),
    "delayed": ("sync.method=delayed",),
    "local_sgd": ("sync.method=local_sgd",),
    # with the 0.7 and 0.9 of long runs it misses the study's target, which is about ten outer steps away
    "diloco": ("sync.method=diloco", "sync.outer_learning_rate=0.8", "sync.outer_momentum=0.2"),
}
"""By name: settings that override the system's."""
# A run that measured its number format could choose another one and need other samples to the target. Local updates are
# evaluated by the ranks' mean, so no method evaluates an average over steps.
_ALIKE = (
    "precision.compute=fp32",
    "compute.products=torch",
    "optimizer.ema_decay=0",
    "checkpoint.final_weights=false",
)


@dataclass(frozen=True)
class Row:
    """One run over one link."""

    way: str
    mbit: float
    latency_ms: float
    """One way."""
    samples_per_s: float
    """Rate over the whole run; with a fixed number of steps, without its evaluation."""
    samples: int
    reached: bool
    """Whether the run reached its target; never with a fixed number of steps."""
    seconds: float
    """From run_start to run_stop; with a fixed number of steps, without the final evaluation."""


@dataclass(frozen=True)
class Contest:
    """The training that every method does."""

    system: str
    overrides: tuple[str, ...]
    ways: tuple[str, ...]
    seed: int
    steps: int | None
    """Steps of a run without intermediate evaluations; None: to the target."""

    def systems(self) -> dict[str, System]:
        """Return the system of each method; raises ConfigError or DataError if one can't train on two ranks."""
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
        batch = load_system(self.system, always).global_batch_size
        return load_system(self.system, (*always, *steps_only(self.steps, batch)))


def measure(contest: Contest, mbits: Sequence[float], latencies_ms: Sequence[float]) -> list[Row]:
    """Run every method over every link; needs root. Raises the errors of `Contest.systems`."""
    contest.systems()
    rows: list[Row] = []
    for latency_ms in latencies_ms:
        rows += on_two_hosts(_on_rank, contest, mbits, latency_ms, latency_ms=latency_ms)
    return rows


def crossings(rows: Sequence[Row]) -> Iterator[tuple[str, float, float]]:
    """Yield (method, latency, Mbit/s) of each link at which a method takes as long as every_step.

    Between two measured bandwidths, seconds are interpolated linearly in 1 / bandwidth.
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
    """Return seconds to the target, or seconds a sample in runs without a target."""
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
                row = _row(way, mbit, latency_ms, read_run(log, to_target=contest.steps is None))
                rows.append(row)
                progress.message(
                    f"{mbit:g} Mbit/s, {latency_ms:g} ms: {way}: {row.samples:,} samples in {row.seconds:.1f} s, "
                    f"{row.samples_per_s:,.0f} a second, accuracy {run.evaluations[-1][1]:.3f}"
                )
    return rows


def _row(way: str, mbit: float, latency_ms: float, run: Trained) -> Row:
    rate = round(run.samples / run.seconds, 1)
    return Row(way, mbit, latency_ms, rate, run.samples, run.reached, round(run.seconds, 3))
