"""Check an allocation before a run: every node's facts, the all-reduce of all ranks, and what is wrong where."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.launch.preflight import (
    Node,
    add_problems,
    all_reduce_gbit,
    clock_offsets_s,
    neighbours_gbit,
    this_node,
)


@dataclass(frozen=True)
class Allocation:
    """The nodes of an allocation and their problems."""

    system: System
    all_reduce_gbit: float | None
    """Of all ranks; None for one rank."""
    nodes: list[Node]

    @property
    def problems(self) -> list[str]:
        """Return the problems of all nodes, a line each."""
        return [
            f"node {number} ({node.host}): {problem}"
            for number, node in enumerate(self.nodes)
            for problem in node.problems
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the allocation for --json."""
        return {
            "system": self.system.name,
            "ranks": self.system.world_size,
            "gpus": self.system.world_size,
            "all_reduce_gbit": self.all_reduce_gbit,
            "nodes": [{"node": number, **asdict(node)} for number, node in enumerate(self.nodes)],
            "problems": self.problems,
        }

    def lines(self) -> list[str]:
        """Return a table of the nodes, the all-reduce and the problems."""
        lines = [
            f"{'node':>5} {'host':<20}{'ranks':>12}{'GPUs':>6}{'disk GB':>10}{'clock ms':>10}{'Gbit/s':>9}  code, data"
        ]
        for number, node in enumerate(self.nodes):
            gbit = "" if node.all_reduce_gbit is None else f"{node.all_reduce_gbit:.2f}"
            lines.append(
                f"{number:>5} {node.host:<20}{f'{node.ranks[0]} to {node.ranks[-1]}':>12}{len(node.gpus):>6}"
                f"{node.disk_free_gb:>10,.0f}{node.clock_offset_ms:>+10.1f}{gbit:>9}  {node.code}, {node.data}"
                f"{'  <- bad' if node.problems else ''}"
            )
        if self.all_reduce_gbit is not None:
            lines.append(f"all-reduce over all {self.system.world_size} ranks: {self.all_reduce_gbit:.2f} Gbit/s")
        return [*lines, *(self.problems or ["nothing is wrong"])]


def check_allocation(system: System, world: World, least_gbit: float) -> Allocation:
    """Return, on every rank, the all-reduce of all ranks in Gbit/s and every node with its problems.

    Expects consecutive rank numbers on each node.
    """
    local_ranks = world.from_all(world.ranks.local_rank)
    starts = [rank for rank, local_rank in enumerate(local_ranks) if local_rank == 0]
    ends = [*starts[1:], world.size]
    ranks_of_nodes = [list(range(start, end)) for start, end in zip(starts, ends, strict=True)]
    offsets = clock_offsets_s(world)
    of_all = all_reduce_gbit(world)
    with_neighbours = neighbours_gbit(world, ranks_of_nodes)
    led_here = next((ranks for ranks in ranks_of_nodes if ranks[0] == world.rank), None)
    described = world.from_all(this_node(system, led_here) if led_here else None)
    bandwidths = world.from_all(with_neighbours or of_all)
    nodes = [
        replace(node, clock_offset_ms=1e3 * offsets[node.ranks[0]], all_reduce_gbit=bandwidths[node.ranks[0]])
        for node in described
        if node is not None
    ]
    return Allocation(system, of_all, add_problems(nodes, least_gbit))
