"""Runs as a user starts them: a launcher and its ranks, which a test hits while they train."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bertbench.results.files import ResultFiles
from tests.training.test_run import BERTBENCH, metrics, wait_for


def words(overrides: Sequence[str]) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


@contextmanager
def launched(*command: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Begin `bertbench train` with these words; it is gone after the body."""
    launcher = subprocess.Popen(
        [*BERTBENCH, "train", *map(str, command)], env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    )
    try:
        yield launcher
    finally:
        launcher.kill()
        launcher.wait()


def finished(*command: object) -> subprocess.CompletedProcess[str]:
    """Run `bertbench train` with these words to its end."""
    return subprocess.run([*BERTBENCH, "train", *map(str, command)], capture_output=True, text=True, check=False)


def wait_for_steps(log: Path, steps: int) -> None:
    wait_for(lambda: ResultFiles(log).metrics.exists() and len(metrics(log)) >= steps)
