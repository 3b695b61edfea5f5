"""Load batches ahead: a thread plans, gathers and sends the next steps while the device computes the current one."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from bertbench.balance.plan import EXCHANGING
from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import DATA
from bertbench.config import System
from bertbench.data.store.columns import Array, Integers
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, SampleCheck, batch_of, gather, read_samples
from bertbench.loading.filler import Fill, filled_to_size, unfilled
from bertbench.loading.sampler import Part, RankStep, Sampler
from bertbench.model.shape import BatchCounts

if TYPE_CHECKING:
    from bertbench.loading.sample_exchange import SampleExchange

STEPS_AHEAD = 2
"""Number of steps that are planned beyond the one on which a rank works."""
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
    """The mean load of a rank divided by the largest, by the cost model: the share of the step in which the average
    rank works."""
    wait_ms: float = 0.0
    """How long the step waited for its samples."""
    counts: BatchCounts | None = None
    """Tokens of all ranks' samples; None if the step's operations aren't counted."""


class _LoadingStep(NamedTuple):
    """A step, and the future result of loading it in the thread."""

    step: int
    loaded: Future[LoadedStep]


class Loader:
    """Read one rank's batches ahead of its steps, in a thread.

    `exchange` gathers the samples that a group of ranks has drawn. All ranks of the group must iterate over the same
    steps, because they load each step together. `startup` gets two marks in the first step: when it is planned, and
    when its shards are open.
    """

    def __init__(
        self,
        sampler: Sampler,
        rank: int,
        device: torch.device,
        exchange: "SampleExchange | None" = None,
        fill: Fill = unfilled,
        startup: Startup | None = None,
    ) -> None:
        self._sampler = sampler
        self._samples = sampler.dataset.map_samples()
        self._rank = rank
        self._device = device
        self._exchange = exchange
        self._check = SampleCheck.of(sampler.dataset)
        self._fill = fill
        self._startup = startup or Startup()
        self._copy_stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next_warning = time.monotonic()

    def steps(self, steps: range) -> Iterator[LoadedStep]:
        """Yield each of `steps` in order. Raises the errors of reading, and DataError for an invalid sample."""
        with ThreadPoolExecutor(1, "loader", use_device, (self._device,)) as thread:
            ahead: deque[_LoadingStep] = deque()
            for step in steps:
                is_first = step == steps.start
                ahead.append(_LoadingStep(step, thread.submit(self._load, step, is_first)))
                if len(ahead) > STEPS_AHEAD:
                    yield self._wait_for(ahead.popleft())
            while ahead:
                yield self._wait_for(ahead.popleft())

    def _load(self, step: int, is_first: bool) -> LoadedStep:
        """Plan a step, read this rank's samples and send them to the device, in the thread."""
        planned = self._sampler.step(step, self._rank)
        if is_first:
            self._startup.mark("plan")
            self._open_shards(planned)
            self._startup.mark("shards")
        if self._exchange is None:
            batches = self._read_own(planned.parts)
        else:
            batches = self._read_exchanged(planned, self._exchange)
        with torch.cuda.stream(self._copy_stream):  # does nothing on a CPU
            loaded = [self._sent(part, batch) for part, batch in zip(planned.parts, batches, strict=True)]
        return LoadedStep(parts=loaded, load_efficiency=planned.load_efficiency, counts=planned.counts)

    def _sent(self, part: Part, batch: Batch) -> LoadedPart:
        """Fill a batch up to its planned size or, if it has none, as the run's code needs it; start its copy."""
        batch = self._fill(batch) if part.size is None else filled_to_size(batch, part.size)
        return LoadedPart(part, batch.to(self._device))

    def _open_shards(self, planned: RankStep) -> None:
        """Open the files that contain this rank's first samples."""
        shares = planned.plan.assigned if self._exchange is None else planned.plan.drawn
        shards = np.unique(self._samples.shards_of(shares.of(self._rank)))
        for number in shards.tolist():
            self._samples.shard(number)

    def _read_own(self, parts: list[Part]) -> list[Batch]:
        """Read the samples of each part."""
        lengths = self._sampler.dataset.lengths
        return [gather(self._samples, part.ids, lengths(part.ids), self._check) for part in parts]

    def _read_exchanged(self, planned: RankStep, exchange: "SampleExchange") -> list[Batch]:
        """Read the samples that this rank has drawn, and gather the samples assigned to it from its group."""
        drawn_ids = planned.plan.drawn.of(self._rank)
        drawn = read_samples(self._samples, drawn_ids)
        self._check.require_valid(drawn_ids, drawn)
        ids, content = exchange.gathered(planned.plan, drawn)
        row_by_id = np.argsort(ids)
        batches = []
        for part in planned.parts:
            rows = row_by_id[np.searchsorted(ids, part.ids, sorter=row_by_id)]
            batches.append(batch_of(content.take(rows_longest_first(rows, content.lengths))))
        return batches

    def _wait_for(self, loading: _LoadingStep) -> LoadedStep:
        """Wait for a loaded step, in the training thread, and warn if it takes long."""
        began = time.monotonic()
        with in_phase(DATA):
            loaded = loading.loaded.result()
        wait_s = time.monotonic() - began
        if wait_s > _LONG_WAIT_S and time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + _WARN_EVERY_S
            print(
                f"warning: rank {self._rank}: step {loading.step + 1} waited {wait_s:.1f} s for its samples; "
                "its disk or its cores are too slow",
                file=sys.stderr,
                flush=True,
            )
        if self._copy_stream is not None:  # computing waits for the copies, and keeps their memory until it is done
            computing = torch.cuda.current_stream(self._device)
            computing.wait_stream(self._copy_stream)
            for loaded_part in loaded.parts:
                loaded_part.batch.record_stream(computing)
        return loaded._replace(wait_ms=1e3 * wait_s)


def rows_longest_first(rows: Integers, lengths: Array) -> Integers:
    """Return the rows in the order of a batch: by length, longest first; rows of equal length keep their order."""
    return rows[np.argsort(-lengths[rows], kind="stable")]


def use_device(device: torch.device) -> None:
    """Let this thread use the rank's GPU: by default, it would open a context of 0.5 GiB on the first GPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def make_exchange(system: System, sampler: Sampler, world: World) -> "SampleExchange | None":
    """Return the exchange of drawn samples, if the balance method has one. Collective."""
    if system.data.balance not in EXCHANGING:
        return None
    from bertbench.loading.sample_exchange import SampleExchange  # noqa: PLC0415 - few runs exchange samples

    ranks_per_group = world.size // sampler.planner.groups
    return SampleExchange(sampler.dataset, world.neighbours(ranks_per_group))
