"""Sample how busy the devices of a run are: the processor time of its processes, and NVML's utilisation of GPUs.

A sample is taken every 0.2 s while the run's program is running. Utilisation is computed between two times, such as a
log's run_start and run_stop, so that imports and warm-up don't count.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from bertbench.common.children import child_processes, dying_with_us
from bertbench.machine.gpus import share_busy, visible_gpus

_EVERY_S = 0.2


class UseSample(NamedTuple):
    """What the processes of a run had used up to one time."""

    at_ms: float
    """Time since 1970, as in logs."""
    processor_s: dict[int, float]
    """The processor time of each process since its start."""
    gpu_busy: float | None = None
    """The mean `share_busy` of the GPUs, if there are any."""


def run_sampled(words: Sequence[str], gpus: int) -> tuple[subprocess.CompletedProcess[str], list[UseSample]]:
    """Run a program until it ends; return how it ended, and samples of its processes and of the first `gpus` GPUs."""
    samples = []
    handles = visible_gpus()[:gpus] if gpus else []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=dying_with_us()
    ) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                known_shares = [share for gpu in handles if (share := share_busy(gpu)) is not None]
                gpu_busy = fmean(known_shares) if known_shares else None
                samples.append(UseSample(1e3 * time.time(), _processor_times(process.pid), gpu_busy))
    return subprocess.CompletedProcess(words, process.returncode, output, errors), samples


def processor_use(samples: Sequence[UseSample], began_ms: float, ended_ms: float, cores: int) -> float | None:
    """Return the share of `cores` cores' time that was used between two times; None if it has fewer than 2 samples."""
    inside = _between(samples, began_ms, ended_ms)
    if len(inside) < 2:
        return None
    first = inside[0]
    last = inside[-1]
    used_s = sum(seconds - first.processor_s.get(pid, 0.0) for pid, seconds in last.processor_s.items())
    elapsed_s = (last.at_ms - first.at_ms) / 1e3
    return used_s / (elapsed_s * cores)


def gpu_use(samples: Sequence[UseSample], began_ms: float, ended_ms: float) -> float | None:
    """Return the mean share of time in which GPUs ran a kernel between two times; None if NVML reported nothing."""
    busy = [sample.gpu_busy for sample in _between(samples, began_ms, ended_ms) if sample.gpu_busy is not None]
    return fmean(busy) if busy else None


def _between(samples: Sequence[UseSample], began_ms: float, ended_ms: float) -> list[UseSample]:
    return [sample for sample in samples if began_ms <= sample.at_ms <= ended_ms]


def _processor_times(pid: int) -> dict[int, float]:
    """Return the processor time of a process and of each of its descendants."""
    times = {pid: _processor_s(pid)}
    for child in child_processes(pid):
        times |= _processor_times(child)
    return times


def _processor_s(pid: int) -> float:
    """Return the processor time that all threads of a process have used since it began; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    after_name = stat.rpartition(")")[2].split()  # the name in proc(5)'s stat may contain blanks
    user_ticks = int(after_name[11])
    system_ticks = int(after_name[12])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")
