"""Sample the ranks of a run as Linux sees their processes: alive, how much processor each uses, how much memory."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bertbench.common.atomic import write_state

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FOLDER = "ranks"
_FRESH_S = 30.0


@dataclass(frozen=True, order=True)
class Rank:
    """A rank's process between two looks."""

    rank: int
    host: str
    pid: int
    busy: float
    """Cores that it kept busy; 0 at the first look."""
    rss_bytes: int
    state: str
    """proc(5)'s letter: R runs, S sleeps, D waits for a disk, T is stopped, Z has ended."""


def sampled(find: Callable[[], Iterable[int]]) -> Iterator[list[Rank]]:
    """Yield the ranks that run now among the processes that `find` names, and their load since the last look."""
    before: dict[int, tuple[float, float]] = {}  # of each process: time, and processor seconds until then
    while True:
        numbers = {pid: number for pid in find() if (number := _rank(pid)) is not None}
        found, now = [], {}
        for pid, number in numbers.items():
            fields = _stat(pid)
            if not fields or int(fields[1]) in numbers:  # it has ended, or is a rank's child, which is no rank
                continue
            time_s, used_s = now[pid] = time.time(), _processor_s(fields)
            before_s, before_used_s = before.get(pid, now[pid])
            busy = (used_s - before_used_s) / (time_s - before_s) if time_s > before_s else 0.0
            found.append(Rank(number, os.uname().nodename, pid, busy, int(fields[21]) * _PAGE, fields[0]))
        before = now
        yield sorted(found)


def ranks_of(log: Path) -> list[int]:
    """Return the processes on this machine that are ranks of the run that writes `log`."""
    wanted = log.resolve()
    return [pid for path in Path("/proc").glob("[0-9]*") if _result(pid := int(path.name)) == wanted]


def ranks_beside(pid: int) -> list[int]:
    """Return the processes on this machine that were started with `pid`, a rank, by the same launcher."""
    fields = _stat(pid)
    parent = int(fields[1]) if fields else 0
    return [pid, *(child for child in children(parent) if child != pid)] if parent > 1 else [pid]


def leave(folder: Path, ranks: Sequence[Rank]) -> None:
    """Write the ranks of this machine for watchers on others, over the file system they share. Raises OSError."""
    place = folder / _FOLDER
    place.mkdir(exist_ok=True)
    write_state(place / f"{os.uname().nodename}.json", {"time_s": time.time(), "ranks": list(map(vars, ranks))})


def elsewhere(folder: Path) -> list[Rank]:
    """Return the ranks that other machines left within the last half minute; what can't be read is passed over."""
    found: list[Rank] = []
    for path in sorted((folder / _FOLDER).glob("*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            content = json.loads(path.read_text())
            if path.stem != os.uname().nodename and time.time() - content["time_s"] < _FRESH_S:
                found += [Rank(**one) for one in content["ranks"]]
    return found


def processor_s(pid: int) -> float:
    """Return the processor time of a process since it began, of all its threads; 0 of one that has ended."""
    return _processor_s(_stat(pid))


def children(pid: int) -> list[int]:
    """Return the processes that a process has started: from Linux's list of them, which costs no look at all others."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def _rank(pid: int) -> int | None:
    """Return the rank of a process; None for others, and where it ended or belongs to somebody else."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    environment = dict(pair.partition(b"=")[::2] for pair in pairs)
    rank = environment.get(b"RANK", environment.get(b"SLURM_PROCID", b""))
    return int(rank) if rank.isdigit() else None


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5)'s stat behind the name, which may hold blanks: the state is the first.

    None of a process that has ended.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _processor_s(fields: list[str]) -> float:
    return sum(map(int, fields[11:13])) / _TICKS


def _result(pid: int) -> Path | None:
    """Return the log that a process's command line names behind --result, as the process sees it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        if "--result" not in words[:-1]:
            return None
        return (Path(f"/proc/{pid}/cwd").readlink() / words[words.index("--result") + 1]).resolve()
    except OSError:
        return None
