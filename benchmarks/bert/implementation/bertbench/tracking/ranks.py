"""The ranks of a run as Linux sees their processes: alive, how much processor each uses, how much memory.

A rank that waits for others in a collective sleeps, so on CPUs the rank that works the most is the one that the others
wait for: the straggler. The wall time of a step can't say so, because a collective levels it over all ranks.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertbench.common.atomic import write_state

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_APART = 1.1
"""A straggler works at least this many times as much as the next rank: less is noise of a scheduler."""
_FOLDER = "ranks"
_FRESH_S = 30.0
_LEAST_BUSY = 0.2  # share of a core below which a rank doesn't compute


class Process(NamedTuple):
    """A rank's process at one time."""

    rank: int
    pid: int
    host: str
    cpu_s: float
    """Processor time since it began, of all its threads."""
    rss_bytes: int
    state: str
    """proc(5)'s letter: R runs, S sleeps, D waits for a disk, T is stopped, Z has ended."""
    time_s: float


class Rank(NamedTuple):
    """A rank between two looks."""

    rank: int
    host: str
    pid: int
    busy: float
    """Cores that it kept busy."""
    rss_bytes: int
    state: str


def ranks_of(log: Path) -> list[Process]:
    """Return the processes on this machine that are ranks of the run that writes `log`, by rank."""
    wanted = log.resolve()
    return _sorted(pid for pid in _pids() if (words := _words(pid)) and _result(pid, words) == wanted)


def ranks_beside(pid: int) -> list[Process]:
    """Return the processes on this machine that were started with `pid`, a rank, by the same launcher."""
    parent = _parent(pid)
    return _sorted(iter({pid, *children(parent)} if parent > 1 else {pid}))


def between(before: Sequence[Process], after: Sequence[Process]) -> list[Rank]:
    """Return each rank of `after`, its load since `before`; of one that is new, since it began to be looked at: 0."""
    known = {process.pid: process for process in before}
    found = []
    for process in after:
        earlier = known.get(process.pid, process)
        seconds = process.time_s - earlier.time_s
        busy = (process.cpu_s - earlier.cpu_s) / seconds if seconds > 0 else 0.0
        found.append(Rank(process.rank, process.host, process.pid, busy, process.rss_bytes, process.state))
    return found


def leave(folder: Path, ranks: Sequence[Rank]) -> None:
    """Write the ranks of this machine for watchers on others, over the file system they share. Raises OSError."""
    place = folder / _FOLDER
    place.mkdir(exist_ok=True)
    write_state(place / f"{os.uname().nodename}.json", {"time_s": time.time(), "ranks": ranks})


def elsewhere(folder: Path) -> list[Rank]:
    """Return the ranks that other machines left within the last half minute; what can't be read is passed over."""
    found: list[Rank] = []
    for path in sorted((folder / _FOLDER).glob("*.json")):
        try:
            content = json.loads(path.read_text())
            if path.stem != os.uname().nodename and time.time() - content["time_s"] < _FRESH_S:
                found += [Rank(*one) for one in content["ranks"]]
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return found


def straggler(ranks: Sequence[Rank]) -> int | None:
    """Return the rank that the others wait for, if one clearly works more than all others."""
    if len(ranks) < 2:
        return None
    first, second = sorted(ranks, key=lambda rank: rank.busy, reverse=True)[:2]
    return first.rank if first.busy > _LEAST_BUSY and first.busy > _APART * second.busy else None


def _sorted(pids: Iterator[int]) -> list[Process]:
    found = {pid: process for pid in pids if (process := _process(pid)) is not None}
    own = (process for pid, process in found.items() if _parent(pid) not in found)  # a rank's children are no ranks
    return sorted(own, key=lambda process: process.rank)


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").glob("[0-9]*"))


def _process(pid: int) -> Process | None:
    """Return a process that has a rank; None for others, and where it ended or belongs to somebody else."""
    try:
        pairs = (pair.partition(b"=") for pair in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        environment = {name: value for name, _, value in pairs}
        rank = environment.get(b"RANK", environment.get(b"SLURM_PROCID", b""))
        if not rank.isdigit():
            return None
        fields = _stat(pid)
        cpu_s, rss_bytes = _processor_s(fields), int(fields[21]) * _PAGE
        return Process(int(rank), pid, os.uname().nodename, cpu_s, rss_bytes, fields[0], time.time())
    except (OSError, ValueError, IndexError):
        return None


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5)'s stat behind the name, which may hold blanks: the state is the first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def processor_s(pid: int) -> float:
    """Return the processor time of a process since it began, of all its threads; 0 of one that has ended."""
    try:
        return _processor_s(_stat(pid))
    except (OSError, ValueError, IndexError):
        return 0.0


def _processor_s(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _parent(pid: int) -> int:
    try:
        return int(_stat(pid)[1])
    except (OSError, ValueError, IndexError):
        return 0


def children(pid: int) -> list[int]:
    """Return the processes that a process has started: from Linux's list of them, which costs no look at all others."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _result(pid: int, words: list[str]) -> Path | None:
    """Return the log that a command line names behind --result, as the process sees it."""
    if "--result" not in words[:-1]:
        return None
    try:
        return (Path(f"/proc/{pid}/cwd").readlink() / words[words.index("--result") + 1]).resolve()
    except OSError:
        return None
