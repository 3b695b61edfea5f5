"""Batches ahead of the step: a thread plans, gathers and sends the next steps while the device computes this one."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch

from bertbench.balance.plan import efficiency
from bertbench.common.ranges import DATA_WAIT, named
from bertbench.data.store.dataset import MappedSamples
from bertbench.loading.batch import Batch, batch_of, gather, read
from bertbench.loading.exchange import Exchange
from bertbench.loading.filler import filled
from bertbench.loading.sample_check import Soundness
from bertbench.loading.sampler import Part, Sampler

_STEPS_AHEAD = 2
_LONG_WAIT_S = 1.0
_WARN_EVERY_S = 60.0


class LoadedPart(NamedTuple):
    """A part of a step with its samples read."""

    part: Part
    batch: Batch


class LoadedStep(NamedTuple):
    """What one rank works through in a step."""

    parts: list[LoadedPart]
    load_efficiency: float
    """Mean over largest load of all ranks, by the cost model: what share of the step the ranks don't wait."""
    skipped: int = 0
    """Samples that were left out."""
    wait_ms: float = 0.0
    """What the step has waited for them."""


def load_steps(
    sampler: Sampler,
    samples: MappedSamples,
    steps: range,
    rank: int,
    device: torch.device,
    exchange: Exchange | None = None,
    soundness: Soundness | None = None,
    fill: bool = False,
    mark: Callable[[str], None] = lambda _: None,
) -> Iterator[LoadedStep]:
    """Each of `steps` for one rank, in order; raises what reading raised, DataError for a sample that is not sound.

    Where the disk is too slow, a warning says which rank waited. `fill` rounds batches up to static sizes.

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
        skipped_before = soundness.skipped if soundness else 0
        if exchange is None:
            batches = [gather(samples, part.ids, sampler.dataset.lengths(part.ids), soundness) for part in parts]
        else:
            drawn = plan.drawn.of(rank)
            content = read(samples, drawn)
            ids, content = exchange.gathered(plan, soundness.ensured(drawn, content) if soundness else content)
            by_id = np.argsort(ids)
            rows = [by_id[np.searchsorted(ids, part.ids, sorter=by_id)] for part in parts]
            batches = [batch_of(content.take(of[np.argsort(-content.lengths[of], kind="stable")])) for of in rows]
        with torch.cuda.stream(copies):  # does nothing on a CPU
            sent = [(filled(batch) if fill else batch).to(device) for batch in batches]
        return LoadedStep(
            [LoadedPart(part, batch) for part, batch in zip(parts, sent, strict=True)],
            efficiency(sampler.planner.loads(plan)),
            soundness.skipped - skipped_before if soundness else 0,
        )

    waited_s, next_warning = 0.0, time.monotonic()

    def waited_for(loading: Future[LoadedStep], step: int) -> LoadedStep:
        nonlocal waited_s, next_warning
        began = time.monotonic()
        with named(DATA_WAIT):
            loaded = loading.result()
        wait_s = time.monotonic() - began
        mark("first batch")
        waited_s += wait_s
        if wait_s > _LONG_WAIT_S and time.monotonic() >= next_warning:
            next_warning = time.monotonic() + _WARN_EVERY_S
            print(
                f"warning: rank {rank}: step {step + 1} waited {wait_s:.1f} s for its samples, {waited_s:.0f} s since "
                "the run began; its disk or its cores are too slow",
                file=sys.stderr,
                flush=True,
            )
        if copies is not None:  # let what computes wait for the copies, and keep their memory until it is done
            computing = torch.cuda.current_stream(device)
            computing.wait_stream(copies)
            for _, batch in loaded.parts:
                batch.record_stream(computing)
        return loaded._replace(wait_ms=1e3 * wait_s)

    with ThreadPoolExecutor(1, thread_name_prefix="loader") as reader:
        ahead: deque[tuple[Future[LoadedStep], int]] = deque()
        for step in steps:
            ahead.append((reader.submit(load, step), step))
            if len(ahead) > _STEPS_AHEAD:
                yield waited_for(*ahead.popleft())
        while ahead:
            yield waited_for(*ahead.popleft())
