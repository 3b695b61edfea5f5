"""Simulate a step of a pipeline: each rank runs its passes in its schedule's order, as soon as their inputs arrive.

A message between ranks takes a fixed time, during which the ranks can compute. Orders are those of torch's schedules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bertbench.config.layout import PipelineSchedule


class Pass(NamedTuple):
    """One microbatch's forward or backward pass on one stage."""

    kind: str
    """`forward` or `backward`."""
    stage: int
    microbatch: int


Order = list[Pass]
"""The passes of a rank, in order."""


def orders(schedule: PipelineSchedule, ranks: int, microbatches: int, virtual_stages: int = 1) -> list[Order]:
    """Return the passes of each rank in order. For interleaved schedules, `ranks` must divide `microbatches`."""
    match schedule:
        case "gpipe":
            return [
                [*_all("forward", rank, microbatches), *_all("backward", rank, microbatches)] for rank in range(ranks)
            ]
        case "1f1b":
            return [_one_by_one(rank, ranks, microbatches) for rank in range(ranks)]
        case "interleaved":
            return [_interleaved(rank, ranks, microbatches, virtual_stages) for rank in range(ranks)]


def _all(kind: str, stage: int, microbatches: int) -> Iterator[Pass]:
    for microbatch in range(microbatches):
        yield Pass(kind, stage, microbatch)


def _one_by_one(stage: int, stages: int, microbatches: int) -> Order:
    forward = [*_all("forward", stage, microbatches)]
    backward = [*_all("backward", stage, microbatches)]
    ahead = min(microbatches, stages - stage)
    order = forward[:ahead]
    for number in range(microbatches):
        order.append(backward[number])
        if ahead + number < microbatches:
            order.append(forward[ahead + number])
    return order


def _interleaved(rank: int, ranks: int, microbatches: int, virtual_stages: int) -> Order:
    forward = []
    backward = []
    for first in range(0, microbatches, ranks):  # each round of microbatches passes through all stages of the rank
        for virtual in range(virtual_stages):
            for microbatch in range(first, first + ranks):
                forward.append(Pass("forward", virtual * ranks + rank, microbatch))
                backward.append(Pass("backward", (virtual_stages - 1 - virtual) * ranks + rank, microbatch))
    ahead = min(len(forward), (virtual_stages - 1) * ranks + 2 * (ranks - 1 - rank))
    order = forward[:ahead]
    for number, backward_pass in enumerate(backward):
        if ahead + number < len(forward):
            order.append(forward[ahead + number])
        order.append(backward_pass)
    return order


@dataclass(frozen=True)
class SimulatedStep:
    """The times at which each pass begins and ends, in seconds."""

    times: Mapping[Pass, tuple[float, float]]
    ranks: int

    @property
    def seconds(self) -> float:
        """Return how long the step takes."""
        return max(ended for _, ended in self.times.values())

    @property
    def bubble(self) -> float:
        """Return the share of the step in which ranks wait for other stages."""
        busy = sum(ended - began for began, ended in self.times.values())
        return 1 - busy / (self.ranks * self.seconds)


def at_once(_: Pass) -> float:
    """Return 0: a pass begins as soon as its rank and its input are ready."""
    return 0.0


def simulate_pipeline(
    orders_of_ranks: Sequence[Order],
    seconds_of: Callable[[Pass], float],
    message_s: float,
    stages: int,
    handover_s: Callable[[Pass], float] = at_once,
) -> SimulatedStep:
    """Simulate a step, given the seconds of each pass and `message_s`, the time of a message between two ranks.

    `handover_s` returns the delay between the time when a pass's rank and input are ready, and the pass's beginning.
    """
    ranks = len(orders_of_ranks)
    times: dict[Pass, tuple[float, float]] = {}
    next_pass = [0] * ranks
    free_at = [0.0] * ranks
    while any(next_pass[rank] < len(orders_of_ranks[rank]) for rank in range(ranks)):
        progressed = False
        for rank, order in enumerate(orders_of_ranks):
            while next_pass[rank] < len(order):
                current = order[next_pass[rank]]
                ready = _ready_at(current, times, message_s, ranks, stages)
                if ready is None:
                    break
                began = max(free_at[rank], ready) + handover_s(current)
                free_at[rank] = began + seconds_of(current)
                times[current] = (began, free_at[rank])
                next_pass[rank] += 1
                progressed = True
        assert progressed, "in every schedule, some first unfinished pass has its input"
    return SimulatedStep(times, ranks)


def _ready_at(
    wanted: Pass, times: Mapping[Pass, tuple[float, float]], message_s: float, ranks: int, stages: int
) -> float | None:
    """Return when a pass's input arrives; None if the pass that makes it hasn't been simulated yet."""
    if wanted.kind == "forward":
        source_stage = wanted.stage - 1
        if source_stage < 0:
            return 0.0
        source = Pass("forward", source_stage, wanted.microbatch)
    elif wanted.stage == stages - 1:
        source = Pass("forward", wanted.stage, wanted.microbatch)
    else:
        source = Pass("backward", wanted.stage + 1, wanted.microbatch)
    if source not in times:
        return None
    _, ended = times[source]
    between_ranks = source.stage % ranks != wanted.stage % ranks
    return ended + message_s if between_ranks else ended
