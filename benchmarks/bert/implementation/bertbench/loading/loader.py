"""Load batches ahead: a thread plans, gathers and sends the next steps while the device computes this one."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from bertbench.balance.plan import EXCHANGING, StepPlan
from bertbench.common.phase_clock import DATA_WAIT, in_phase
from bertbench.config import System
from bertbench.data.store.columns import Array, Integers
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, SampleCheck, batch_of, gather, read
from bertbench.loading.filler import Fill, unfilled
from bertbench.loading.sampler import Part, Sampler

if TYPE_CHECKING:
    from bertbench.loading.sample_exchange import SampleExchange

STEPS_AHEAD = 2
"""Steps that are planned beyond the one that a rank works on."""
_LONG_WAIT_S = 1.0
_WARN_EVERY_S = 60.0


class LoadedPart(NamedTuple):
    """A part of a step with its samples read."""

    part: Part
    batch: Batch


class LoadedStep(NamedTuple):
    """One rank's samples of a step."""

    parts: list[LoadedPart]
    load_efficiency: float
    """Mean over largest load of all ranks, by the cost model: the share of the step in which no rank waits; where
    ranks are of different speeds, of their work in seconds."""
    skipped: int = 0
    """Samples left out as damaged."""
    load: float = 0.0
    """Cost of this rank's samples, by the cost model."""
    wait_ms: float = 0.0
    """How long the step waited for its samples."""


class Loader:
    """Read one rank's batches ahead of its steps, in a thread.

    `exchange` gathers the samples that a group of ranks has drawn: all its ranks must iterate alike, since they load
    each step together. `startup` gets marks of the first step: planned, its shards open.
    """

    def __init__(
        self,
        sampler: Sampler,
        rank: int,
        device: torch.device,
        exchange: "SampleExchange | None" = None,
        check: SampleCheck | None = None,
        fill: Fill = unfilled,
        startup: Startup | None = None,
    ) -> None:
        self._sampler = sampler
        self._samples = sampler.dataset.map_samples()
        self._rank = rank
        self._device = device
        self._exchange = exchange
        self._check = check or SampleCheck.of(sampler.dataset)
        self._fill = fill
        self._startup = startup or Startup()
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next_warning = time.monotonic()

    def steps(self, steps: range) -> Iterator[LoadedStep]:
        """Yield each of `steps` in order. Raises errors of reading, DataError for an invalid sample."""
        with ThreadPoolExecutor(1, "loader", claim, (self._device,)) as reader:
            ahead: deque[tuple[Future[LoadedStep], int]] = deque()
            for step in steps:
                ahead.append((reader.submit(self._load, step, step == steps.start), step))
                if len(ahead) > STEPS_AHEAD:
                    yield self._wait_for(*ahead.popleft())
            while ahead:
                yield self._wait_for(*ahead.popleft())

    def _load(self, step: int, first: bool) -> LoadedStep:
        """Plan a step, read this rank's samples and send them to the device, in the thread."""
        plan = self._sampler.planner.plan(step)
        parts = self._sampler.share(plan, self._rank)
        if first:
            self._startup.mark("plan")
            self._open_shards(plan)
            self._startup.mark("shards")
        skipped_before = self._check.skipped
        if self._exchange is None:
            lengths = self._sampler.dataset.lengths
            batches = [gather(self._samples, part.ids, lengths(part.ids), self._check) for part in parts]
        else:
            batches = self._read_exchanged(plan, parts, self._exchange)
        with torch.cuda.stream(self._copies):  # does nothing on a CPU
            sent = [self._fill(batch).to(self._device) for batch in batches]
        loads_R = self._sampler.planner.loads(plan)
        return LoadedStep(
            [LoadedPart(part, batch) for part, batch in zip(parts, sent, strict=True)],
            self._sampler.planner.efficiency(loads_R, step),
            self._check.skipped - skipped_before,
            float(loads_R[self._rank]),
        )

    def _open_shards(self, plan: StepPlan) -> None:
        """Open the files that this rank's first samples lie in."""
        mine = plan.dealt if self._exchange is None else plan.drawn
        for number in np.unique(self._samples.shards_of(mine.of(self._rank))).tolist():
            self._samples.shard(number)

    def _read_exchanged(self, plan: StepPlan, parts: list[Part], exchange: "SampleExchange") -> list[Batch]:
        """Read the samples that this rank has drawn, and gather its dealt samples from its group."""
        drawn = plan.drawn.of(self._rank)
        content = read(self._samples, drawn)
        ids, content = exchange.gathered(plan, self._check.ensured(drawn, content))
        by_id = np.argsort(ids)
        rows = [by_id[np.searchsorted(ids, part.ids, sorter=by_id)] for part in parts]
        return [batch_of(content.take(rows_longest_first(part_rows, content.lengths))) for part_rows in rows]

    def _wait_for(self, loading: Future[LoadedStep], step: int) -> LoadedStep:
        """Wait for a loaded step, in the training thread, and warn of a slow disk."""
        began = time.monotonic()
        with in_phase(DATA_WAIT):
            loaded = loading.result()
        wait_s = time.monotonic() - began
        if wait_s > _LONG_WAIT_S and time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + _WARN_EVERY_S
            print(
                f"warning: rank {self._rank}: step {step + 1} waited {wait_s:.1f} s for its samples; "
                "its disk or its cores are too slow",
                file=sys.stderr,
                flush=True,
            )
        if self._copies is not None:  # computing waits for the copies and keeps their memory until it is done
            computing = torch.cuda.current_stream(self._device)
            computing.wait_stream(self._copies)
            for _, batch in loaded.parts:
                batch.record_stream(computing)
        return loaded._replace(wait_ms=1e3 * wait_s)


def rows_longest_first(rows: Integers, lengths: Array) -> Integers:
    """Return the rows in the order in which a batch has its samples: the longest first, equal ones as they were."""
    return rows[np.argsort(-lengths[rows], kind="stable")]


def claim(device: torch.device) -> None:
    """Set the rank's GPU in this thread: by default it would open a context of 0.5 GiB on the first."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def make_exchange(system: System, sampler: Sampler, world: World) -> "SampleExchange | None":
    """Return the exchange of drawn samples, if the balance method has one. Collective."""
    if system.data.balance not in EXCHANGING:
        return None
    from bertbench.loading.sample_exchange import SampleExchange  # noqa: PLC0415 - a run loads what it takes

    return SampleExchange(sampler.dataset, world.neighbours(world.size // sampler.planner.groups))
