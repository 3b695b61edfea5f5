"""Find each node's problems from the facts of all nodes. Pure: no I/O, no communication."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from bertbench.launch.preflight_node import Node

LEAST_DISK_GB = 1.0
"""Logs and metrics of ten runs take some 10 MB; snapshots take more."""
MOST_CLOCK_MS = 500.0
"""People compare times in ranks' logs; NTP keeps clocks within some 10 ms."""

_SAME: tuple[tuple[str, Callable[[Node], str], str], ...] = (
    ("code differs", lambda node: node.code, "check out the same commit, and the same system file, everywhere"),
    ("data differ", lambda node: node.data, "copy the same data and checkpoint everywhere"),
    ("GPUs differ", lambda node: "; ".join(f"{n}x {kind}" for kind, n in Counter(node.gpus).items()) or "none",
     "ask for nodes of one kind"),
)  # fmt: skip


def judged(nodes: Sequence[Node], least_gbit: float) -> list[Node]:
    """Return the nodes with all their problems: their own, exceeded bounds, and differences from most other nodes."""
    return [
        replace(node, problems=[*node.problems, *_bounds(node, least_gbit), *_unlike(node, nodes)]) for node in nodes
    ]


def _bounds(node: Node, least_gbit: float) -> list[str]:
    problems = []
    if node.disk_free_gb < LEAST_DISK_GB:
        problems.append(f"{node.disk_free_gb:.2f} GB are free where the run would write, {LEAST_DISK_GB:g} are needed")
    if abs(node.clock_offset_ms) > MOST_CLOCK_MS:
        problems.append(
            f"its clock is {node.clock_offset_ms:+,.0f} ms off rank 0's, {MOST_CLOCK_MS:g} are allowed; start NTP there"
        )
    if node.all_reduce_gbit is not None and node.all_reduce_gbit < least_gbit:
        problems.append(
            f"all-reduce reaches {node.all_reduce_gbit:.2f} Gbit/s, the floor is {least_gbit:g}; look at its network "
            "cards (NCCL_DEBUG=INFO tells which are used), or set --min-gbit"
        )
    return problems


def _unlike(node: Node, nodes: Sequence[Node]) -> list[str]:
    problems = []
    for what, value, remedy in _SAME:
        usual, count = Counter(map(value, nodes)).most_common(1)[0]  # of equally many, the first node's
        if value(node) != usual:
            problems.append(f"its {what} from {count} of {len(nodes)} nodes: {value(node)}, not {usual}; {remedy}")
    return problems
