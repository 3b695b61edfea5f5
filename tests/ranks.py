"""Run a function on real gloo processes: `run_ranks(2, function, *arguments)` returns what each rank returned."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from bertbench.distributed.spawn import environments_of
from bertbench.distributed.world import join

CONTEXT = multiprocessing.get_context("forkserver")
# Importing torch takes seconds: the server does it once, ranks are forked from it.
CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "bertbench.training.train"])
_LIMIT_S = 180  # against hangs only: the slowest test's ranks take 40 s on two idle cores, twice that on busy ones


def run_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call function(world, *arguments) on `count` ranks; raises AssertionError with the failures."""
    answers = answers_of(environments_of(count), _joined, function, arguments)
    failures = [text for failed, text in answers if failed]
    assert not failures, "\n".join(failures)
    return [value for _, value in answers]


def answers_of(
    environments: Sequence[Mapping[str, str]], function: Callable[..., Any], *arguments: Any
) -> list[tuple[bool, Any]]:
    """Call function(*arguments) in a process for each environment: whether it raised, and what it gave or raised."""
    pipes = [CONTEXT.Pipe(duplex=False) for _ in environments]
    processes = [
        CONTEXT.Process(target=_process, args=(environment, sender, function, arguments))
        for environment, (_, sender) in zip(environments, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    answers = []
    for receiver, _ in pipes:
        assert receiver.poll(_LIMIT_S), "a rank gave no answer"
        answers.append(receiver.recv())
    for process in processes:
        process.join(_LIMIT_S)
        process.kill()
    return answers


def _process(environment: Mapping[str, str], sender: Connection, function: Callable[..., Any], arguments: Any) -> None:
    os.environ.update(environment)
    try:
        sender.send((False, function(*arguments)))
    except BaseException:  # noqa: BLE001 - whatever it was, the test must see it
        sender.send((True, traceback.format_exc()))
        os._exit(1)


def _joined(function: Callable[..., Any], arguments: Any) -> Any:
    with join("cpu", timeout_s=20) as world:
        return function(world, *arguments)
