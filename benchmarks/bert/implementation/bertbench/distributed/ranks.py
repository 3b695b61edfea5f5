"""Find this process's rank, and this machine's place among those of a run, in torchrun's variables.

A rank is a process with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, which torchrun's engine sets; nothing else
makes one. `bertbench launch` uses that engine itself. On one of several machines, it reads the variables by which
torchrun takes its options: PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT. run.sub sets them.

common/children.py asks for the node's number, too, because it can't import this file; no other file reads these
variables. This file doesn't import torch, because a command needs it before it loads torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bertbench.common.errors import ConfigError, RunError

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_NODE = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """A process's rank and the number of ranks, in the run and on its node."""

    rank: int
    size: int
    local_rank: int
    local_size: int


class Node(NamedTuple):
    """A machine of a run on several: its number, how many nodes there are, and where they meet, on the first."""

    number: int
    nodes: int
    address: str
    port: int


def launched_ranks(environment: Mapping[str, str]) -> Ranks | None:
    """Return this process's ranks; None if a variable is missing, because then the process isn't a rank.

    Raises RunError if a variable isn't a number, or is out of range.
    """
    values = [environment.get(name, "") for name in _TORCHRUN]
    if not all(values):
        return None
    try:
        rank, size, local_rank, local_size = map(int, values)
    except ValueError as error:
        raise RunError(f"{_listed(_TORCHRUN, values)}: expected whole numbers, as torchrun sets them") from error
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise RunError(
            f"rank {rank} of {size}, {local_rank} of {local_size} on its node: ranks count from 0 to one less than "
            f"their number; correct {', '.join(_TORCHRUN)}, or unset RANK to let this process start the ranks"
        )
    return Ranks(rank, size, local_rank, local_size)


def launched_node(environment: Mapping[str, str]) -> Node | None:
    """Return this machine's place in a run on several; None if the variables don't describe several.

    Raises ConfigError if one is missing or wrong.
    """
    values = [environment.get(name, "") for name in _NODE]
    if values[0] in ("", "1"):
        return None
    try:
        nodes, number, port = int(values[0]), int(values[1]), int(values[3])
    except ValueError:
        nodes, number, port = 0, 0, 0
    if not (0 <= number < nodes and values[2] and 0 < port < 2**16):
        raise ConfigError(
            f"{_listed(_NODE, values)}: expected the number of nodes, this node's number from 0 on, and the address "
            "and port at which the first one can be reached"
        )
    return Node(number, nodes, values[2], port)


def _listed(names: tuple[str, ...], values: list[str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
