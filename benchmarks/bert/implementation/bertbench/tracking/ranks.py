"""Find a run's ranks on this machine, and the processor time of processes, as Linux's proc(5) shows them."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, order=True)
class Rank:
    """A rank's process."""

    rank: int
    pid: int
    state: str
    """proc(5)'s letter: R runs, S sleeps, D waits for a disk, T is stopped."""


def ranks_of(log: Path) -> list[Rank]:
    """Return the ranks on this machine of the run that writes `log`, in their order."""
    processes = Path("/proc").glob("[0-9]*")
    found = [one for process in processes if (one := _rank(process, log.resolve())) is not None]
    ids = {rank.pid for rank, _ in found}
    return sorted(rank for rank, parent in found if parent not in ids)  # a rank's children look like it


def _rank(process: Path, log: Path) -> tuple[Rank, int] | None:
    """Return the rank that a process is, and its parent; None for others, and for those that have ended."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        if "--result" not in words[:-1]:
            return None
        result = (process / "cwd").readlink() / words[words.index("--result") + 1]
        pairs = (process / "environ").read_bytes().split(b"\0")
        state, parent, *_ = _stat(process)
    except OSError:  # it has ended, or belongs to somebody else
        return None
    environment = dict(pair.partition(b"=")[::2] for pair in pairs)
    rank = environment.get(b"RANK", environment.get(b"SLURM_PROCID", b""))
    if not rank.isdigit() or result.resolve() != log:
        return None
    return Rank(int(rank), int(process.name), state), int(parent)


def processor_s(pid: int) -> float:
    """Return the processor time of a process since it began, of all its threads; 0 of one that has ended."""
    try:
        return sum(map(int, _stat(Path("/proc", str(pid)))[11:13])) / _TICKS
    except OSError:
        return 0.0


def children(pid: int) -> list[int]:
    """Return the processes that a process has started: from Linux's list of them, which costs no look at all others."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def _stat(process: Path) -> list[str]:
    """Return the fields of proc(5)'s stat behind the name, which may hold blanks: the state is the first."""
    return (process / "stat").read_text().rpartition(")")[2].split()
