"""Ranks of a benchmark: processes on this machine, joined as a run's are."""

import os
import socket
from collections.abc import Callable
from typing import Any

from torch import multiprocessing

from bertbench.distributed.world import join

_TIMEOUT_S = 120


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any, device: str = "cpu") -> Any:
    """What rank 0 returns from function(world, *arguments), called on `count` ranks; on `cuda` each has its GPU."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(_rank, (count, port, answers, device, function, arguments), nprocs=count)
    return answers.get()


def _rank(
    rank: int, count: int, port: int, answers: Any, device: str, function: Callable[..., Any], arguments: Any
) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    with join(device, _TIMEOUT_S) as world:
        answer = function(world, *arguments)
        if world.leads:
            answers.put(answer)
