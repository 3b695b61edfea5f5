"""`bertbench preflight SYSTEM`: check an allocation before a run.

Called directly it starts the system's ranks; started by torchrun or Slurm it is one of them.
"""

import argparse
import shlex
import sys
from dataclasses import asdict, replace

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from bertbench.commands import emit, passed_on, say, system_of
from bertbench.commands.arguments import LEAST_GBIT
from bertbench.common.errors import StoppedError
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.launch.local import agent_of, check_startable
from bertbench.launch.preflight import Node, all_reduce_gbit, clock_offsets_s, judged, neighbours_gbit, this_node
from bertbench.launch.rank import as_rank, ranks_of


def run(arguments: argparse.Namespace) -> int:
    """Return 0 without problems, 1 with problems, which the table locates."""
    system = system_of(arguments)
    ranks = ranks_of(system)
    if ranks is None:
        return _started(system, arguments)
    least = LEAST_GBIT[system.launch.device] if arguments.min_gbit is None else arguments.min_gbit
    with as_rank(system, ranks) as world:
        overall, nodes = checked(system, world, least)
        if world.leads:
            content = {
                "system": system.name,
                "ranks": system.world_size,
                "all_reduce_gbit": overall,
                "nodes": [{"node": number, **asdict(node)} for number, node in enumerate(nodes)],
                "problems": _problems(nodes),
            }
            emit(arguments.json, content, *_lines(system, overall, nodes))
            sys.stdout.flush()
    return int(any(node.problems for node in nodes))


def checked(system: System, world: World, least_gbit: float) -> tuple[float | None, list[Node]]:
    """Return, on every rank, the all-reduce of all ranks in Gbit/s (None for one rank), and every node's problems.

    Expects consecutive rank numbers on each node.
    """
    begins = [rank for rank, place in enumerate(world.from_all(world.ranks.local_rank)) if place == 0]
    nodes = [list(range(first, stop)) for first, stop in zip(begins, [*begins[1:], world.size], strict=True)]
    offsets = clock_offsets_s(world)
    overall, with_neighbours = all_reduce_gbit(world), neighbours_gbit(world, nodes)
    own = next((ranks for ranks in nodes if ranks[0] == world.rank), None)
    said = world.from_all(this_node(system, own) if own else None)
    bandwidths = world.from_all(with_neighbours or overall)
    found = [
        replace(node, clock_offset_ms=1e3 * offsets[node.ranks[0]], all_reduce_gbit=bandwidths[node.ranks[0]])
        for node in said
        if node is not None
    ]
    return overall, judged(found, least_gbit)


def _started(system: System, arguments: argparse.Namespace) -> int:
    """Start this machine's ranks; they print the answer."""
    ranks, name = system.launch.ranks_per_node, shlex.quote(system.argument)
    check_startable(
        system,
        f"start it in an allocation with `srun --mpi=none --ntasks-per-node={ranks} bertbench preflight {name}`, or by "
        "torchrun on each node (docs/running.md)",
    )
    try:
        options = passed_on(arguments, "min_gbit", "json")
        agent_of(system)("-P", "-m", "bertbench", "preflight", arguments.system, *options)
    except SignalException as stopped:
        say(f"bertbench: {StoppedError.SIGN} {stopped.sigval.name}; all ranks stopped")
        return 128 + int(stopped.sigval)
    except ChildFailedError as failed:
        return max(1, *(failure.exitcode for failure in failed.failures.values()))
    return 0


def _lines(system: System, overall: float | None, nodes: list[Node]) -> list[str]:
    lines = [
        f"{'node':>5} {'host':<20}{'ranks':>12}{'GPUs':>6}{'disk GB':>10}{'clock ms':>10}{'Gbit/s':>9}  code, data"
    ]
    for number, node in enumerate(nodes):
        gbit = "" if node.all_reduce_gbit is None else f"{node.all_reduce_gbit:.2f}"
        lines.append(
            f"{number:>5} {node.host:<20}{f'{node.ranks[0]} to {node.ranks[-1]}':>12}{len(node.gpus):>6}"
            f"{node.disk_free_gb:>10,.0f}{node.clock_offset_ms:>+10.1f}{gbit:>9}  {node.code}, {node.data}"
            f"{'  <- bad' if node.problems else ''}"
        )
    if overall is not None:
        lines.append(f"all-reduce over all {system.world_size} ranks: {overall:.2f} Gbit/s")
    return [*lines, *(_problems(nodes) or ["nothing is wrong"])]


def _problems(nodes: list[Node]) -> list[str]:
    return [f"node {number} ({node.host}): {what}" for number, node in enumerate(nodes) for what in node.problems]
