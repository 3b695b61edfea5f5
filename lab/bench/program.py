"""Measure a program in its own process, so that its memory and allocator settings are its own."""

from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self

import torch
from torch import multiprocessing

from bertbench.common.errors import RunError
from bertbench.data.store.columns import Columns
from lab.bench.harness import milliseconds
from lab.bench.peak import peak_bytes, reset_peak

Step = Callable[[Columns], None]


class Took(NamedTuple):
    """Time and memory of a step."""

    seconds: float
    memory_bytes: int
    """Peak memory, with weights and optimizer, above the process's memory before it built a model."""


class Program:
    """Run variants of a program in one process; `build(device, *arguments)` returns them by name there."""

    def __init__(
        self, build: Callable[..., Mapping[str, Step]], threads: int, device: torch.device, *arguments: Any
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, build, threads, device, arguments), daemon=True)
        self._process.start()
        there.close()

    def step(self, variant: str, content: Columns) -> Took:
        """Train a variant on a batch; raises RunError if the process ended, after its own message."""
        self._connection.send((variant, content))
        try:
            took: Took = self._connection.recv()
        except EOFError as error:
            self._process.join()
            raise RunError(
                f"{variant}: its process ended with code {self._process.exitcode}; if it was killed, memory was short: "
                "choose a smaller --batch or --sizes"
            ) from error
        return took

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()


def _serve(
    connection: Connection,
    build: Callable[..., Mapping[str, Step]],
    threads: int,
    device: torch.device,
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(threads)
    before = peak_bytes(device)
    variants = build(device, *arguments)
    while True:
        try:
            variant, content = connection.recv()
        except EOFError:
            return
        reset_peak(device)
        seconds = milliseconds(partial(variants[variant], content), device) / 1e3
        connection.send(Took(seconds, peak_bytes(device) - before))
