"""Start `bertbench` as users do, in processes of its own; find its ranks, wait for its steps, read what it measured."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.ranks import LIMIT_S

BERTBENCH = [sys.executable, "-m", "bertbench"]


def words(overrides: Iterable[str]) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


def finished(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `bertbench` with these words to its end."""
    return subprocess.run(
        [*BERTBENCH, *map(str, command)], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=2 * LIMIT_S, check=False,
    )  # fmt: skip


@contextmanager
def launched(*command: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start `bertbench` with these words in its own session; it is stopped after the body."""
    launcher = subprocess.Popen(
        [*BERTBENCH, *map(str, command)], env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield launcher
    finally:
        launcher.kill()
        launcher.wait()


def children(launcher: int) -> dict[int, int]:
    """Process ids of a launcher's ranks, by rank."""
    found = {}
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        with suppress(ProcessLookupError, FileNotFoundError):  # programs that a launcher asks end soon
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            ranks = [int(entry[5:]) for entry in environment if entry.startswith(b"RANK=")]
            found.update({rank: int(pid) for rank in ranks})
    return found


def wait_for(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"it didn't happen within {limit_s:g} s"
        time.sleep(0.05)


def wait_for_steps(log: Path, steps: int) -> None:
    wait_for(lambda: (log.with_suffix("") / "metrics.jsonl").exists() and len(metrics(log)) >= steps)


def metrics(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (log.with_suffix("") / "metrics.jsonl").read_text().splitlines()]
