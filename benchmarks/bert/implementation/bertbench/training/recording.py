"""Record a function's work as a CUDA graph, and decide whether that would save time."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from bertbench.common.phase_clock import wait_for_device

Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Given a function, returns a function that repeats its work on the same memory and returns the same tensor."""

# Beside launching a step, a run's host plans later steps, copies batches and logs.
_LAUNCHING = 0.7
_TIMED = 3


def launch_share(work: Callable[[], object], device: torch.device) -> float:
    """Return the share of the work's time that the host takes to launch it, 1 if the device always waits for the host.

    The least of a few rounds counts. On a CPU, the share is 1.
    """
    shares = []
    for _ in range(_TIMED):
        wait_for_device(device)
        began = perf_counter()
        work()
        launched = perf_counter()
        wait_for_device(device)
        ended = perf_counter()
        shares.append((launched - began) / (ended - began))
    return min(shares)


def saves_time(share: float) -> bool:
    """Return whether graphs shorten a step, given the share of its time that the host takes to launch it.

    A graph takes the launches from the host. If the host is always ahead of the device, that saves nothing, and a graph
    costs filler.
    """
    return share > _LAUNCHING


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is a lack of the device's memory, or came while one was handled.

    A recording that such an error interrupts ends with an error of its own.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            return True
        cause = cause.__context__
    return False


def recorder(stream: torch.cuda.Stream | None) -> Record:
    """Return a function that records CUDA graphs on a stream. On a CPU, without a stream, work is simply repeated."""
    return (lambda work: work) if stream is None else _cuda_graphs(stream)


def _cuda_graphs(stream: torch.cuda.Stream) -> Record:
    """Return a function that records CUDA graphs on a stream and streams forked from it.

    The graphs share one memory pool, because only one of them runs at a time.
    """
    pool: Any = torch.cuda.graph_pool_handle()

    def record(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog queries events from its own thread, which other modes don't allow during recording
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            answer = work()

        def replay() -> Tensor:
            graph.replay()
            return answer

        return replay

    return record
