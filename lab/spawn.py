"""Start ranks as processes of this machine, as a launcher starts those of a run."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import SystemRandom
from typing import Any

from torch import multiprocessing

from bertbench.common.children import die_with_parent
from bertbench.distributed.world import join

_TIMEOUT_S = 300
_LOOK_S = 0.1
_PORTS = 10_000, 32_768


def environments_of(count: int) -> list[dict[str, str]]:
    """Return the environment variables that a launcher sets for each of `count` ranks; they meet at a free port."""
    port = free_port()
    return [
        {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count),
         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for rank in range(count)
    ]  # fmt: skip


def free_port() -> int:
    """Return a free port below those that systems hand out, because one of those would soon be taken."""
    while True:
        port = SystemRandom().randrange(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def on_ranks(
    count: int,
    function: Callable[..., Any],
    *arguments: Any,
    device: str = "cpu",
    prepare: Callable[[int], None] | None = None,
) -> Any:
    """Call function(world, *arguments) on `count` ranks, each with its own GPU if `cuda`; return rank 0's result.

    `prepare` is called with the rank before the ranks meet, and may move its process to another network.
    """
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    arguments_of_ranks = (os.getpid(), environments_of(count), prepare, answers, device, function, arguments)
    ranks = multiprocessing.spawn(_rank, arguments_of_ranks, nprocs=count, join=False)
    answers_of_rank_0 = []
    while not ranks.join(_LOOK_S):  # raises if a rank failed
        if not answers.empty():  # an answer above a pipe's 64 KB blocks rank 0 until it is read
            answers_of_rank_0.append(answers.get())
    return answers_of_rank_0[0] if answers_of_rank_0 else answers.get()


def _rank(
    rank: int,
    parent: int,
    environments: Sequence[Mapping[str, str]],
    prepare: Callable[[int], None] | None,
    answers: Any,
    device: str,
    function: Callable[..., Any],
    arguments: Any,
) -> None:
    die_with_parent(parent)  # torch would send SIGINT, on which a rank at its exit prints a traceback
    os.environ.update(environments[rank])
    if prepare is not None:
        prepare(rank)
    with join(device, _TIMEOUT_S) as world:
        answer = function(world, *arguments)
        if world.leads:
            answers.put(answer)
