"""Batches ahead of the step: a thread plans and gathers the next steps while the device computes this one."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch

from bertbench.data.batch import Batch, gather
from bertbench.data.dataset import MappedSamples
from bertbench.data.sampler import Part, Sampler

_STEPS_AHEAD = 2


class LoadedPart(NamedTuple):
    """A part of a step with its samples read."""

    part: Part
    batch: Batch


def load_steps(
    sampler: Sampler, samples: MappedSamples, steps: range, rank: int, device: torch.device
) -> Iterator[list[LoadedPart]]:
    """The parts of each of `steps` for one rank, in order; raises what reading raised."""

    def load(step: int) -> list[LoadedPart]:
        return [
            LoadedPart(part, gather(samples, part.ids, sampler.dataset.lengths(part.ids)).to(device))
            for part in sampler.share(step, rank)
        ]

    with ThreadPoolExecutor(1, thread_name_prefix="loader") as reader:
        ahead: deque[Future[list[LoadedPart]]] = deque()
        try:
            for step in steps:
                ahead.append(reader.submit(load, step))
                if len(ahead) > _STEPS_AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
