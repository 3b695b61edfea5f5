"""Find the processes of a run's ranks on this machine, as Linux's proc(5) shows them."""

import os
from dataclasses import dataclass
from pathlib import Path

from bertbench.common.children import LAUNCHER


@dataclass(frozen=True, order=True)
class RankProcess:
    """A rank's process."""

    rank: int
    pid: int
    state: str
    """proc(5)'s letter: R runs, S sleeps, D waits for a disk, T is stopped."""


@dataclass(frozen=True)
class _Candidate:
    """A process that looks like a rank, by its command and its environment."""

    rank: RankProcess
    parent: int
    launcher: int
    """The process of bertbench that started the ranks; 0 where another launcher did."""


def ranks_on_this_machine(log: Path) -> list[RankProcess]:
    """Return the ranks on this machine of the run that writes `log`, in their order."""
    candidates = []
    for process in Path("/proc").glob("[0-9]*"):
        if candidate := _candidate(process, log.resolve()):
            candidates.append(candidate)
    launchers = {candidate.launcher for candidate in candidates}  # in the shell of `srun --pty` they look like a rank
    ranks = [candidate for candidate in candidates if candidate.rank.pid not in launchers]
    pids = {candidate.rank.pid for candidate in ranks}  # a rank's children look like it
    return sorted(candidate.rank for candidate in ranks if candidate.parent not in pids)


def _candidate(process: Path, log: Path) -> _Candidate | None:
    """Return a process that looks like a rank; None for others, and for those that have ended."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        if "--result" not in words[:-1]:
            return None
        result = (process / "cwd").readlink() / words[words.index("--result") + 1]
        variables = (process / "environ").read_bytes().split(b"\0")
        stat = process_stat(process)
    except OSError:  # it has ended, or belongs to somebody else
        return None
    environment = dict(variable.partition(b"=")[::2] for variable in variables)
    rank = environment.get(b"RANK", environment.get(b"SLURM_PROCID", b""))
    if not rank.isdigit() or result.resolve() != log:
        return None
    launcher = environment.get(os.fsencode(LAUNCHER), b"0")
    state = stat[0]
    parent = stat[1]
    return _Candidate(RankProcess(int(rank), int(process.name), state), int(parent), int(launcher))


def process_stat(process: Path) -> list[str]:
    """Return the fields of proc(5)'s stat behind the name, which may hold blanks: state, parent and so on."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def processor_s(pid: int) -> float:
    """Return the processor time of a process since it began, of all its threads; 0 of one that has ended."""
    try:
        stat = process_stat(Path("/proc", str(pid)))
    except OSError:
        return 0.0
    user_ticks = int(stat[11])
    system_ticks = int(stat[12])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started: from Linux's list of them, which costs no look at all others."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]
