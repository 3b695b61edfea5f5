"""Check an allocation before a run: gather every node's facts and the all-reduce of all ranks, and find what is wrong.

`launch/preflight.py` describes and measures the nodes. `add_problems` judges their facts without I/O or communication.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.launch.preflight import (
    Node,
    all_reduce_gbit,
    clock_offsets_s,
    neighbours_gbit,
    this_node,
)

_LEAST_DISK_GB = 1.0
"""Logs and metrics of ten runs take about 10 MB; snapshots take more."""
_MOST_CLOCK_MS = 500.0
"""People compare times in ranks' logs. NTP keeps clocks within about 10 ms of each other."""


@dataclass(frozen=True)
class Allocation:
    """The nodes of an allocation and their problems."""

    system: System
    all_reduce_gbit: float | None
    """The all-reduce bandwidth of all ranks; None for a single rank."""
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
        return [*lines, *(self.problems or ["no problems found"])]


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
    nodes = []
    for node in described:
        if node is not None:
            first = node.ranks[0]
            nodes.append(replace(node, clock_offset_ms=1e3 * offsets[first], all_reduce_gbit=bandwidths[first]))
    return Allocation(system, of_all, add_problems(nodes, least_gbit))


class _SharedFact(NamedTuple):
    """What all nodes of an allocation must have in common."""

    difference: str
    value: Callable[[Node], str]
    remedy: str


def _gpu_counts(node: Node) -> str:
    counts = Counter(node.gpus)
    return "; ".join(f"{count}x {kind}" for kind, count in counts.items()) or "none"


_SHARED_FACTS = (
    _SharedFact(
        "code differs", lambda node: node.code, "check out the same commit, and the same system file, everywhere"
    ),
    _SharedFact("data differ", lambda node: node.data, "copy the same data and checkpoint everywhere"),
    _SharedFact("GPUs differ", _gpu_counts, "ask for nodes of one kind"),
)


def add_problems(nodes: Sequence[Node], least_gbit: float) -> list[Node]:
    """Return the nodes with all their problems: their own, exceeded bounds, and differences from most other nodes."""
    judged = []
    for node in nodes:
        problems = [*node.problems, *_exceeded_bounds(node, least_gbit), *_unlike_others(node, nodes)]
        judged.append(replace(node, problems=problems))
    return judged


def _exceeded_bounds(node: Node, least_gbit: float) -> list[str]:
    problems = []
    if node.disk_free_gb < _LEAST_DISK_GB:
        problems.append(
            f"{node.disk_free_gb:.2f} GB are free where the run would write, but {_LEAST_DISK_GB:g} GB is needed"
        )
    if abs(node.clock_offset_ms) > _MOST_CLOCK_MS:
        problems.append(
            f"its clock is {node.clock_offset_ms:+,.0f} ms off rank 0's, but only {_MOST_CLOCK_MS:g} ms are allowed; "
            "start NTP there"
        )
    if node.all_reduce_gbit is not None and node.all_reduce_gbit < least_gbit:
        problems.append(
            f"all-reduce reaches {node.all_reduce_gbit:.2f} Gbit/s, but at least {least_gbit:g} is required; check its "
            "network cards (NCCL_DEBUG=INFO shows which are used), or set --min-gbit"
        )
    return problems


def _unlike_others(node: Node, nodes: Sequence[Node]) -> list[str]:
    problems = []
    for fact in _SHARED_FACTS:
        counts = Counter(fact.value(other) for other in nodes)
        usual, count = counts.most_common(1)[0]  # if two are equally common, that of the first node
        value = fact.value(node)
        if value != usual:
            problems.append(
                f"its {fact.difference} from {count} of {len(nodes)} nodes: {value}, not {usual}; {fact.remedy}"
            )
    return problems
