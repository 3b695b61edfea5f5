"""Measure a program in a process of its own, so that it has its own memory and allocator settings."""

import os
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self

import torch
from torch import multiprocessing

from bertbench.common.children import die_with_parent
from bertbench.common.errors import RunError
from bertbench.data.store.columns import Columns
from bertbench.distributed.device import keep_freed_memory
from lab.bench.harness import milliseconds
from lab.bench.peak import peak_bytes, reset_peak

Step = Callable[[Columns], None]


class Took(NamedTuple):
    """The time and memory of a step."""

    seconds: float
    memory_bytes: int
    """Peak memory, including weights and optimizer, minus the process's memory before it built a model."""


class StepProcess:
    """Runs a program in a process, where `build(device, *arguments)` returns its step."""

    def __init__(
        self, name: str, build: Callable[..., Step], threads: int, device: torch.device, *arguments: Any
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._name = name
        self._connection, there = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(os.getpid(), there, build, threads, device, arguments), daemon=True
        )
        self._process.start()
        there.close()

    def step(self, content: Columns) -> Took:
        """Train on a batch. Raises RunError if the process has ended; its own message comes first."""
        self._connection.send(content)
        try:
            took: Took = self._connection.recv()
        except EOFError as error:
            self._process.join()
            raise RunError(
                f"{self._name}: its process ended with code {self._process.exitcode}; if it was killed for lack of "
                "memory, choose a smaller --batch or --sizes"
            ) from error
        return took

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()


def _serve(
    parent: int,
    connection: Connection,
    build: Callable[..., Step],
    threads: int,
    device: torch.device,
    arguments: tuple[Any, ...],
) -> None:
    die_with_parent(parent)
    torch.set_num_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()  # as in our runs; the same for baselines
    before = peak_bytes(device)
    step = build(device, *arguments)
    while True:
        try:
            content = connection.recv()
        except EOFError:
            return
        reset_peak(device)
        seconds = milliseconds(partial(step, content), device) / 1e3
        connection.send(Took(seconds, peak_bytes(device) - before))
