"""Measure clocks and all-reduce bandwidth between nodes, with the run's own backend.

Bandwidth is counted as nccl-tests does ("bus bandwidth"): 2 (R - 1) / R of the bytes over the time, so that any number
of ranks compares with the links' rate.
"""

import time

import torch
from torch import distributed

from bertbench.distributed.world import World
from bertbench.machine.device import wait

_BYTES = {"cuda": 512 << 20, "cpu": 8 << 20}
_REPEATS = 5
_CLOCK_REPEATS = 5


def clock_offsets_s(world: World) -> list[float]:
    """Return each rank's clock minus rank 0's, by rank, as exactly as ranks leave a barrier together."""
    rounds = []
    for _ in range(_CLOCK_REPEATS):
        world.barrier()
        rounds.append(world.from_all(time.time()))
    return [min((times[rank] - times[0] for times in rounds), key=abs) for rank in range(world.size)]


def all_reduce_gbit(world: World, ranks: list[int] | None = None) -> float | None:
    """Return the bandwidth of an all-reduce over these ranks (default: all) in Gbit/s; None on other ranks.

    Every rank of the world must call it.
    """
    group = distributed.group.WORLD if ranks is None else distributed.new_group(ranks)
    members = world.size if ranks is None else len(ranks)
    if (ranks is not None and world.rank not in ranks) or members == 1:
        return None
    tensor = torch.ones(_BYTES[world.device.type] // 4, device=world.device)
    times = []
    for _ in range(1 + _REPEATS):  # the first one builds connections
        wait(world.device)
        began = time.perf_counter()
        distributed.all_reduce(tensor, group=group)
        wait(world.device)
        times.append(time.perf_counter() - began)
        tensor.fill_(1)
    return 8e-9 * 2 * (members - 1) / members * 4 * tensor.numel() / min(times[1:])


def neighbours_gbit(world: World, nodes: list[list[int]]) -> float | None:
    """Return the better of a node's bandwidths with its two neighbours: a bad node is slow with both.

    `nodes` holds each node's ranks. Returns None if there is only one node.
    """
    best: list[float] = []
    for first in (0, 1):  # pairs 0-1, 2-3, ..., then 1-2, 3-4, ...: each node in one pair at a time
        pairs = [nodes[place] + nodes[place + 1] for place in range(first, len(nodes) - 1, 2)]
        for pair in pairs:
            measured = all_reduce_gbit(world, pair)
            best += [] if measured is None else [measured]
    return max(best, default=None)
