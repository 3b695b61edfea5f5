"""Run a function on real gloo processes, or a command as torchrun starts it.

`run_ranks(2, function, *arguments)` returns what each rank returned; `run_command(2, words, folder)` how they ended.
"""

import gc
import multiprocessing
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from bertbench.cli.main import main
from bertbench.distributed.world import World, join
from lab.spawn import environments_of

CONTEXT = multiprocessing.get_context("forkserver")
# Importing torch takes seconds: the server does it once, ranks are forked from it. DDP imports torch._dynamo.
CONTEXT.set_forkserver_preload(["torch._dynamo.testing", "bertbench.training.train", "pytest", "tests.frozen"])
LIMIT_S = 600
"""Of any wait, against hangs only: on a machine that others use, what is waited for may take many times as long."""


def run_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call function(world, *arguments) on `count` ranks; raises AssertionError with the failures."""
    answers = answers_of(environments_of(count), _joined, function, arguments)
    failures = [text for failed, text in answers if failed]
    assert not failures, "\n".join(failures)
    return [value for _, value in answers]


def run_each(count: int, function: Callable[..., Any], *runs: tuple[Any, ...]) -> list[list[Any]]:
    """As `run_ranks`, for each of these tuples of arguments in turn: every rank's answers."""
    return run_ranks(count, _each, function, runs)


def _each(world: World, function: Callable[..., Any], runs: Sequence[tuple[Any, ...]]) -> list[Any]:
    answers = []
    for run in runs:
        answers.append(function(world, *run))
        gc.freeze()  # a run's end thaws what tests/frozen.py froze, and passing over that takes half of the next run
    return answers


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
        assert receiver.poll(LIMIT_S), "a rank gave no answer"
        answers.append(receiver.recv())
    for process in processes:
        process.join(LIMIT_S)
        process.kill()
    return answers


def _process(environment: Mapping[str, str], sender: Connection, function: Callable[..., Any], arguments: Any) -> None:
    os.environ.update(environment)
    try:
        sender.send((False, function(*arguments)))
    except BaseException:  # noqa: BLE001 - whatever it was, the test must see it
        sender.send((True, traceback.format_exc()))
        os._exit(1)


def run_command(count: int, words: Sequence[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `bertbench WORDS` on ranks without a launcher: an exit code that is not 0, if any, and what all wrote.

    Ranks are forked from the server, so that none imports torch again: half a second where two ranks and a launcher
    of their own take ten of a processor. Their output goes through files of `folder`, their logs into its `runs`.
    """
    files = [folder / f"rank_{rank}" for rank in range(count)]
    given = {"LOGDIR": str(folder / "runs"), **environment}
    processes = [
        CONTEXT.Process(target=_command, args=({**own, **given}, words, file))
        for own, file in zip(environments_of(count), files, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT_S)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert None not in codes, "a rank didn't end"
    said = "".join(file.read_text() for file in files)
    return subprocess.CompletedProcess(words, max((code or 0 for code in codes), key=abs), "", said)


def _command(environment: Mapping[str, str], words: Sequence[str], file: Path) -> None:
    os.environ.update(environment)
    with file.open("w") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    sys.exit(main(list(words)))


def _joined(function: Callable[..., Any], arguments: Any) -> Any:
    with join("cpu", timeout_s=20) as world:
        torch.set_num_threads(1)  # one rank's second thread would wait busily for a core that another test has
        return function(world, *arguments)
