"""Sample a run's ranks on this machine, as Linux sees their processes: alive, how busy, how much memory."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, order=True)
class Rank:
    """A rank's process between two looks."""

    rank: int
    pid: int
    busy: float
    """Cores that it kept busy; 0 at the first look."""
    rss_bytes: int
    state: str
    """proc(5)'s letter: R runs, S sleeps, D waits for a disk, T is stopped, Z has ended."""


def sampled(log: Path) -> Iterator[list[Rank]]:
    """Yield the ranks on this machine of the run that writes `log`, and their load since the last look."""
    before: dict[int, tuple[float, float]] = {}  # of each process: time, and processor seconds until then
    while True:
        numbers = {pid: number for pid in _ranks_of(log) if (number := _rank(pid)) is not None}
        found, now = [], {}
        for pid, number in numbers.items():
            fields = _stat(pid)
            if not fields or int(fields[1]) in numbers:  # it has ended, or is a rank's child, which is no rank
                continue
            time_s, used_s = now[pid] = time.time(), _processor_s(fields)
            before_s, before_used_s = before.get(pid, now[pid])
            busy = (used_s - before_used_s) / (time_s - before_s) if time_s > before_s else 0.0
            found.append(Rank(number, pid, busy, int(fields[21]) * _PAGE, fields[0]))
        before = now
        yield sorted(found)


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


def _ranks_of(log: Path) -> list[int]:
    """Return the processes on this machine that are ranks of the run that writes `log`."""
    wanted = log.resolve()
    return [pid for path in Path("/proc").glob("[0-9]*") if _result(pid := int(path.name)) == wanted]


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
