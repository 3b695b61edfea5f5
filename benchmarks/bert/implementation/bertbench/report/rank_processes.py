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
    """The letter that proc(5) shows: R runs, S sleeps, D waits for a disk, T is stopped."""


@dataclass(frozen=True)
class _Candidate:
    """A process whose command and environment look like those of a rank."""

    rank: RankProcess
    parent: int
    launcher: int
    """The process of bertbench that started the ranks; 0 if another launcher started them."""


def ranks_on_this_machine(log: Path) -> list[RankProcess]:
    """Return the ranks on this machine that belong to the run that writes `log`, in the order of ranks."""
    candidates = []
    for process in Path("/proc").glob("[0-9]*"):
        if candidate := _candidate(process, log.resolve()):
            candidates.append(candidate)
    launchers = {candidate.launcher for candidate in candidates}  # in a shell of `srun --pty`, they look like a rank
    ranks = [candidate for candidate in candidates if candidate.rank.pid not in launchers]
    pids = {candidate.rank.pid for candidate in ranks}  # children of a rank look like a rank
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
    except OSError:  # the process has ended, or belongs to another user
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
    """Return the fields of proc(5)'s stat after the name, which may contain blanks: state, parent and so on."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def processor_s(pid: int) -> float:
    """Return the processor time that all threads of a process have used since it began; 0 if it has ended."""
    try:
        stat = process_stat(Path("/proc", str(pid)))
    except OSError:
        return 0.0
    user_ticks = int(stat[11])
    system_ticks = int(stat[12])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the children of a process, from Linux's list of them, so that other processes needn't be examined."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]
