"""Batches ahead of the step: a thread plans, gathers and sends the next steps while the device computes this one."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch

from bertbench.balance.plan import efficiency
from bertbench.data.batch import Batch, batch_of, gather, read
from bertbench.data.dataset import MappedSamples
from bertbench.data.exchange import Exchange
from bertbench.data.filler import filled
from bertbench.data.sampler import Part, Sampler
from bertbench.ranges import DATA_WAIT, named

_STEPS_AHEAD = 2


class LoadedPart(NamedTuple):
    """A part of a step with its samples read."""

    part: Part
    batch: Batch


class LoadedStep(NamedTuple):
    """What one rank works through in a step."""

    parts: list[LoadedPart]
    load_efficiency: float
    """Mean over largest load of all ranks, by the cost model: what share of the step the ranks don't wait."""


def load_steps(
    sampler: Sampler,
    samples: MappedSamples,
    steps: range,
    rank: int,
    device: torch.device,
    exchange: Exchange | None = None,
    fill: bool = False,
    mark: Callable[[str], None] = lambda _: None,
) -> Iterator[LoadedStep]:
    """Each of `steps` for one rank, in order; raises what reading raised. `fill` rounds batches up to static sizes.

    With an exchange all ranks of its group must iterate alike: a step that one has begun to load, all load.
    `mark` is told when the first step is planned, when its shards are open, and when it is here.
    """
    copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def load(step: int) -> LoadedStep:
        plan = sampler.planner.plan(step)
        parts = sampler.share(plan, rank)
        if step == steps.start:
            mark("plan")
            mine = plan.dealt if exchange is None else plan.drawn
            for number in np.unique(samples.shards_of(mine.of(rank))).tolist():
                samples.shard(number)
            mark("shards")
        if exchange is None:
            batches = [gather(samples, part.ids, sampler.dataset.lengths(part.ids)) for part in parts]
        else:
            ids, content = exchange.gathered(plan, read(samples, plan.drawn.of(rank)))
            by_id = np.argsort(ids)
            rows = [by_id[np.searchsorted(ids, part.ids, sorter=by_id)] for part in parts]
            batches = [batch_of(content.take(of[np.argsort(-content.lengths[of], kind="stable")])) for of in rows]
        with torch.cuda.stream(copies):  # does nothing on a CPU
            sent = [(filled(batch) if fill else batch).to(device) for batch in batches]
        return LoadedStep(
            [LoadedPart(part, batch) for part, batch in zip(parts, sent, strict=True)],
            efficiency(sampler.planner.loads(plan)),
        )

    def arrived(step: Future[LoadedStep]) -> LoadedStep:
        """Let the stream that computes wait for the copies, and no memory be used again before it is done with it."""
        with named(DATA_WAIT):
            loaded = step.result()
        mark("first batch")
        if copies is not None:
            computing = torch.cuda.current_stream(device)
            computing.wait_stream(copies)
            for _, batch in loaded.parts:
                batch.record_stream(computing)
        return loaded

    with ThreadPoolExecutor(1, thread_name_prefix="loader") as reader:
        ahead: deque[Future[LoadedStep]] = deque()
        for step in steps:
            ahead.append(reader.submit(load, step))
            if len(ahead) > _STEPS_AHEAD:
                yield arrived(ahead.popleft())
        while ahead:
            yield arrived(ahead.popleft())
