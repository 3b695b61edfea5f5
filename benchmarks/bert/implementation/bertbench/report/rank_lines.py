"""Find a run's ranks on this machine, and the processor time of processes, as Linux's proc(5) shows them."""

import os
from dataclasses import dataclass
from pathlib import Path

from bertbench.common.children import LAUNCHER

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
    launchers = {launcher for _, _, launcher in found}  # in the shell of `srun --pty` they look like a rank
    ranks = [(rank, parent) for rank, parent, _ in found if rank.pid not in launchers]
    ids = {rank.pid for rank, _ in ranks}
    return sorted(rank for rank, parent in ranks if parent not in ids)  # a rank's children look like it


def _rank(process: Path, log: Path) -> tuple[Rank, int, int] | None:
    """Return the rank that a process is, its parent and its launcher; None for others, and for those that have ended.

    The launcher is 0 where it isn't ours.
    """
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
    launcher = int(environment.get(os.fsencode(LAUNCHER), b"0"))
    return Rank(int(rank), int(process.name), state), int(parent), launcher


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
