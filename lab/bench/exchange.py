"""`lab exchange`: compare ways to combine gradients, by bytes, messages, time, staleness and samples to a target.

Four workers learn a least-squares task with a known optimum, by one variant after another, on real gloo processes. A
step computes its gradient and then sleeps, to stand for the computation of a larger model. Some steps, chosen at
random, are slow. With --mbit, the workers are on two virtual hosts, two on each, as in `lab links`.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch.multiprocessing.spawn import ProcessExitedException

from bertbench.common.errors import ConfigError, RunError
from bertbench.common.progress import Progress
from bertbench.common.tables import table_lines
from bertbench.distributed.cores import available_cores
from bertbench.distributed.network_errors import lost_contact
from bertbench.distributed.world import World
from lab.bench import delay_line
from lab.bench.harness import BenchResult, command, option
from lab.bench.network import limit_bandwidth, network_obstacle, on_two_hosts
from lab.exchange.all_reduce import (
    AllReduce,
    gloo,
    hierarchical,
    hierarchical_formula,
    ring,
    ring_formula,
    tree,
    tree_formula,
)
from lab.exchange.gossip import Gossip
from lab.exchange.least_squares import LeastSquares, compute_seconds
from lab.exchange.server import Asynchronous, Bounded, FirstOfStep, ParameterServer, Shard
from lab.exchange.sizes import sizes
from lab.exchange.variant import Variant
from lab.exchange.wire import Wire
from lab.spawn import on_ranks

_WORKERS = 4
_BACKUPS = 1
HOSTS = (0, 0, 1, 1, 0, 1)
"""The host of each rank: first four workers, then the servers, or the backup worker and its server."""
_ELEMENTS = 600
_BATCH = 64  # samples of a worker in a step
_RATE = 0.1
_TARGET = 0.01  # share of the initial excess loss
_SLOW_SHARE, _SLOW_TIMES = 0.1, 5  # the share of steps that take longer, and how many times as long they take
_GIVE_WAY_S = 20  # a rank that lost a peer waits to be stopped, so that the error names the peer
ALL_REDUCE = "all_reduce"
_COLUMNS = {
    "variant": "{0.variant}", "messages": "{0.messages:,.0f}", "by formula": "{0.messages_by_formula:,}",
    "kB": "{0.kilobytes:,.1f}", "formula kB": "{0.kilobytes_by_formula:,.1f}", "ms": "{0.step_ms:,.1f}",
    "model ms": "{0.model_ms:,.1f}", "staleness": "{0.staleness:.2f}", "at most": "{0.most_stale:,}",
    "samples to target": "{0.samples:,}", "seconds": "{0.seconds:.2f}", "times all_reduce": "{0.samples_ratio:.2f}",
    "ranks": "{0.ranks:}{0.mark:}",
}  # fmt: skip
_CODED_ELEMENTS = 100_000
_SHARE, _THRESHOLD = 0.01, 2.5  # top-k's share of a gradient; root mean squares
_SIZE_COLUMNS = {
    "gradient as": "{0.form}", "elements": "{0.elements_sent:,}", "bytes": "{0.bytes:,}", "of fp32": "{0.of_fp32:.1%}",
}  # fmt: skip


def _bounded(elements: int, rate: float, steps: int, bound: int) -> Shard:
    del steps
    return Bounded(elements, _WORKERS, rate, bound)


def _asynchronous(elements: int, rate: float, steps: int) -> Shard:
    del steps
    return Asynchronous(elements, _WORKERS, rate)


def _first_of_step(elements: int, rate: float, steps: int) -> Shard:
    return FirstOfStep(elements, _WORKERS + _BACKUPS, rate, needed=_WORKERS, steps=steps)


VARIANTS: dict[str, Variant] = {
    ALL_REDUCE: AllReduce(_WORKERS, gloo),
    "ring": AllReduce(_WORKERS, ring, ring_formula),
    "tree": AllReduce(_WORKERS, tree, tree_formula),
    "hierarchical": AllReduce(_WORKERS, hierarchical, hierarchical_formula),
    "server": ParameterServer(_WORKERS, 1, partial(_bounded, bound=0), in_step=True),
    "server, 2 shards": ParameterServer(_WORKERS, 2, partial(_bounded, bound=0), in_step=True),
    "ssp 0": ParameterServer(_WORKERS, 1, partial(_bounded, bound=0), in_step=True),
    "ssp 1": ParameterServer(_WORKERS, 1, partial(_bounded, bound=1), in_step=False),
    "ssp 4": ParameterServer(_WORKERS, 1, partial(_bounded, bound=4), in_step=False),
    "asynchronous": ParameterServer(_WORKERS, 1, _asynchronous, in_step=False),
    "gossip": Gossip(_WORKERS),
    "backup, 4 of 5": ParameterServer(_WORKERS + _BACKUPS, 1, _first_of_step, in_step=False),
}


@dataclass(frozen=True)
class Settings:
    """The settings of a run, which all ranks know."""

    names: tuple[str, ...]
    """The names of the variants."""
    steps: int
    compute_s: float
    seed: int
    mbit: float | None = None
    latency_s: float = 0.0


@dataclass(frozen=True)
class ExchangeRow:
    """One run of a variant. Messages and bytes are sums over all ranks, per step of a worker."""

    variant: str
    messages: float | None
    """Counted where messages are sent; None for gloo's own all-reduce."""
    messages_by_formula: int | None
    kilobytes: float | None
    kilobytes_by_formula: float | None
    step_ms: float
    """The mean time of worker 0's steps."""
    model_ms: float | None
    """The time by the alpha-beta model, with the slowest worker's computation; None if workers aren't in step."""
    staleness: float | None
    most_stale: int | None
    samples: int | None
    """The samples that all workers had drawn when worker 0's weights reached the target; None if they didn't."""
    seconds: float | None
    samples_ratio: float | None
    """The samples, divided by those of the all-reduce."""
    ranks: int
    ranks_exceed_cores: bool

    @property
    def mark(self) -> str:
        """Return a star if ranks share cores."""
        return " *" if self.ranks_exceed_cores else ""


class Trace(NamedTuple):
    """What one rank did in a run."""

    messages: int
    bytes: int
    computed_s: list[float]
    """The times at which each of its gradients was computed."""
    stepped_s: list[float]
    """The times at which each of its steps ended."""
    excess: list[float]
    """The excess loss after each step."""
    stalenesses: list[int]
    """The stalenesses that a server recorded."""
    began_s: float


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult | None:
    """Run every variant once; with --mbit or --latency-ms, on two virtual hosts, which need root."""
    latency_ms = 0.0 if arguments.latency_ms is None else arguments.latency_ms
    settings = Settings(
        tuple(VARIANTS), arguments.steps, arguments.compute_ms / 1e3, arguments.seed, arguments.mbit, latency_ms / 1e3
    )
    if arguments.mbit is None and latency_ms == 0:
        start = partial(on_ranks, len(HOSTS))
    elif reason := network_obstacle() or (delay_line.missing_device() if latency_ms else None):
        progress.message(f"skipped: {reason}")
        return None
    else:
        start = partial(on_two_hosts, latency_ms=latency_ms, hosts=HOSTS)
    rows = started(start, on_rank, settings)
    gradient = torch.randn(_CODED_ELEMENTS, generator=torch.Generator().manual_seed(arguments.seed))
    coded = sizes(gradient, _SHARE, _THRESHOLD)
    lines = [*lines_of(rows), "", *table_lines(coded, _SIZE_COLUMNS)]
    return BenchResult({"variants": rows, "sizes": coded}, lines)


def started(start: Callable[..., Any], function: Callable[..., Any], *arguments: Any) -> Any:
    """Return start(function, *arguments), which runs on ranks. Raises RunError that names a rank that was killed."""
    try:
        return start(function, *arguments)
    except ProcessExitedException as error:
        how = f"was killed by {error.signal_name}" if error.signal_name else f"ended with exit code {error.exit_code}"
        raise RunError(
            f"rank {error.error_index} ({_role(error.error_index)}) {how}; the other ranks were stopped"
        ) from None


def _role(rank: int) -> str:
    if rank < _WORKERS:
        return "worker"
    return "parameter server or backup worker" if rank == _WORKERS else "parameter server"


def on_rank(world: World, settings: Settings) -> list[ExchangeRow]:
    """Run one variant after the other, and return a row for each; only rank 0's rows are complete."""
    progress = Progress(enabled=world.leads)
    leads_host = HOSTS.index(HOSTS[world.rank]) == world.rank
    if settings.mbit is not None and leads_host:
        limit_bandwidth(settings.mbit)
    group = distributed.new_group(list(range(_WORKERS)))
    samples_of_all_reduce = None
    rows = []
    for name in settings.names:
        variant = VARIANTS[name]
        traces = run_variant(world, variant, settings, group)
        row = row_of(name, variant, traces, settings, samples_of_all_reduce)
        if name == ALL_REDUCE:
            samples_of_all_reduce = row.samples
        rows.append(row)
        progress.message(f"{name}: {row.step_ms:,.1f} ms per step")
    return rows


def run_variant(
    world: World, variant: Variant, settings: Settings, group: distributed.ProcessGroup | None = None
) -> list[Trace]:
    """Run one variant on this rank and its peers, and return each rank's trace. Ranks that aren't needed wait."""
    wire = Wire(world.rank, variant.workers, group=group)
    world.barrier()
    try:
        if world.rank < variant.workers:
            trace = _work(wire, variant, settings)
        elif world.rank < variant.workers + variant.servers:
            server = world.rank - variant.workers
            stalenesses = variant.serve(wire, server, _ELEMENTS, _RATE, settings.steps)
            trace = Trace(wire.messages, wire.bytes, [], [], [], stalenesses, 0.0)
        else:
            trace = Trace(0, 0, [], [], [], [], 0.0)
        return world.from_all(trace)
    except RuntimeError as error:
        if lost_contact(error):
            time.sleep(_GIVE_WAY_S)
        raise


def _work(wire: Wire, variant: Variant, settings: Settings) -> Trace:
    """Take all steps of a worker."""
    task = LeastSquares(_ELEMENTS, _BATCH, wire.rank, settings.seed)
    weights = torch.zeros(_ELEMENTS)
    trace = Trace(0, 0, [], [], [], [], time.monotonic())
    for number, seconds in enumerate(_compute_seconds(settings, wire.rank)):
        gradient = task.gradient(weights)
        time.sleep(seconds)
        trace.computed_s.append(time.monotonic())
        variant.step(wire, weights, gradient, _RATE, number)
        trace.stepped_s.append(time.monotonic())
        trace.excess.append(task.excess(weights))
    return trace._replace(messages=wire.messages, bytes=wire.bytes)


def _compute_seconds(settings: Settings, worker: int) -> list[float]:
    usual_s = settings.compute_s
    return compute_seconds(settings.steps, worker, settings.seed, usual_s, _SLOW_TIMES * usual_s, _SLOW_SHARE)


def row_of(
    name: str, variant: Variant, traces: Sequence[Trace], settings: Settings, samples_of_all_reduce: int | None
) -> ExchangeRow:
    """Return the row of a run, given the traces of its ranks."""
    formula = variant.formula(_ELEMENTS)
    first = traces[0]
    model_s = None
    if formula is not None:
        bytes_per_s = math.inf if settings.mbit is None else settings.mbit * 1e6 / 8
        model_s = formula.seconds(settings.latency_s, bytes_per_s)
    if model_s is not None:
        of_workers = [_compute_seconds(settings, worker) for worker in range(variant.workers)]
        model_s += fmean(max(of_step) for of_step in zip(*of_workers, strict=True))
    reached = next((step for step, excess in zip(count(), first.excess) if excess <= _TARGET), None)
    samples = seconds = None
    if reached is not None:
        seconds = first.stepped_s[reached] - first.began_s
        samples = _samples(variant, traces, reached)
    stalenesses = [staleness for trace in traces for staleness in trace.stalenesses]
    if isinstance(variant, AllReduce):
        stalenesses = [0]
    ranks = variant.workers + variant.servers
    return ExchangeRow(
        variant=name,
        messages=None if formula is None else sum(trace.messages for trace in traces) / settings.steps,
        messages_by_formula=None if formula is None else formula.messages,
        kilobytes=None if formula is None else sum(trace.bytes for trace in traces) / settings.steps / 1e3,
        kilobytes_by_formula=None if formula is None else formula.bytes / 1e3,
        step_ms=round(1e3 * (first.stepped_s[-1] - first.began_s) / settings.steps, 3),
        model_ms=None if model_s is None else round(1e3 * model_s, 3),
        staleness=round(fmean(stalenesses), 3) if stalenesses else None,
        most_stale=max(stalenesses, default=None),
        samples=samples,
        seconds=None if seconds is None else round(seconds, 3),
        samples_ratio=round(samples / (samples_of_all_reduce or samples), 3) if samples else None,
        ranks=ranks,
        ranks_exceed_cores=ranks > available_cores(),
    )


def _samples(variant: Variant, traces: Sequence[Trace], reached: int) -> int:
    """Return the samples that all workers had drawn when worker 0 ended step `reached`."""
    if variant.in_step:
        return (reached + 1) * variant.workers * _BATCH
    then_s = traces[0].stepped_s[reached]
    gradients = sum(computed_s <= then_s for trace in traces for computed_s in trace.computed_s)
    return gradients * _BATCH


def lines_of(rows: Sequence[ExchangeRow]) -> list[str]:
    """Return the table, and the meaning of its star."""
    lines = table_lines(rows, _COLUMNS)
    if any(row.ranks_exceed_cores for row in rows):
        lines.append(f"* has more ranks than the {available_cores()} cores, so its times are meaningless")
    return lines


def _above_zero(name: str, text: str) -> float:
    """Return the number given to an option. Raises ConfigError unless it is above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise ConfigError(f"{name} {text}: expected a number above 0, such as 10")
    return number


add_arguments, run = command(
    measure, ("--steps", 60, "steps of each worker"),
    ("--compute-ms", 5, "milliseconds that each step sleeps, in place of computation"),
    more=[
        option(
            "--mbit", type=partial(_above_zero, "--mbit"), metavar="B",
            help="megabits per second between two virtual hosts (default: one host, no limit); needs root",
        ),
        option(
            "--latency-ms", type=partial(_above_zero, "--latency-ms"), metavar="L",
            help="one-way latency between two virtual hosts, in milliseconds; needs root",
        ),
    ],
    seeds="samples and slow steps",
)  # fmt: skip
