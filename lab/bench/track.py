"""`lab track`: measure what trackers beside a run cost its steps.

One run trains with trackers on. In every other window of some seconds, the side process and the services of trackers
are stopped (SIGSTOP), and nothing else changes. A seed draws the order within each pair of windows, so a drift of the
machine cancels out. A window lasts from one line of metrics.jsonl to another, by the file's time at its two ends: that
is the whole loop, with what no step times. The side process looks at once when it is continued, and stopped time saves
up no more than one look's allowance, so it works as much a second as in an undisturbed run.
"""

import math
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from bertbench.common.children import OUTSIDE
from bertbench.common.errors import ConfigError, RunError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.distributed.affinity import available_cores
from bertbench.report.comparison import estimate
from bertbench.tracking.ranks import children, processor_s
from lab.bench.whole_run import steps_only

WINDOW_S = 5.0  # from one look of the side process to the next
_WARM_UP_S = 30.0  # trackers load code with the first steps they get, and pay for it with the looks that follow
_STEPS = 10_000_000  # out of reach: the bench ends the run
_SIDE = b"bertbench.tracking.side"


class Window(NamedTuple):
    """Steps in a row, with trackers or while they were stopped."""

    on: bool
    seconds: float
    steps: int

    @property
    def step_s(self) -> float:
        """Mean seconds a step."""
        return self.seconds / self.steps


@dataclass(frozen=True)
class Cost:
    """Cost of trackers beside a run."""

    system: str
    trackers: tuple[str, ...]
    ranks: int
    processors: int
    pairs: int
    step_ms_on: float
    step_ms_off: float
    slower: float
    """Time of a step with trackers over that without, minus 1; geometric mean over pairs."""
    low: float
    """Lower end of its 95 % interval, by Student's t over pairs."""
    high: float
    processor_share: float
    """Of one processor, for the side process and the services of trackers, while they run."""


class _Mark(NamedTuple):
    """How far metrics.jsonl was, and when its last line was written."""

    bytes: int
    time_s: float


def contest(name: str, overrides: Sequence[str], minutes: float) -> tuple[System, tuple[str, ...], int]:
    """Return the system, the settings with which it never ends, and the pairs of windows. Raises ConfigError."""
    pairs = int(60 * minutes / (2 * WINDOW_S)) if math.isfinite(minutes) else 0
    if pairs < 2:
        raise ConfigError(
            f"--minutes {minutes:g}: expected at least {4 * WINDOW_S / 60:.1f}, two pairs of windows of {WINDOW_S:g} s"
        )
    system = load_system(name, overrides)
    if system.launch.device != "cpu":
        raise ConfigError(
            f"{system.name}: found ranks on {system.launch.device}, expected cpu, where each step writes a line when "
            "it ends; choose another --system"
        )
    endless = (*overrides, f"schedule.max_steps={_STEPS}", *steps_only(_STEPS, system.global_batch_size))
    return load_system(name, endless), endless, pairs


def measure(
    name: str, overrides: Sequence[str], trackers: Sequence[str], minutes: float, seed: int, progress: Progress
) -> Cost:
    """Train with trackers on and stop them in every other window. Raises ConfigError, and RunError if the run ends."""
    system, settings, pairs = contest(name, overrides, minutes)
    words = [name, "--seed", str(seed)]
    words += [word for setting in settings for word in ("--set", setting)]
    words += [word for tracker in trackers for word in ("--track", tracker)]
    order = list(drawn(pairs, seed))
    with tempfile.TemporaryDirectory() as folder, _training(words, Path(folder)) as run:
        metrics = Path(folder) / system.name / "bert" / "result_0" / "metrics.jsonl"
        while not metrics.exists() or not metrics.stat().st_size:
            _wait(run, Path(folder), 0.2)
        progress.message(f"{system.name} trains; {pairs} pairs of windows begin in {_WARM_UP_S:g} s")
        _wait(run, Path(folder), _WARM_UP_S)
        marks, before_s = [_mark(metrics)], _processor_s(run.pid)
        for number, on in enumerate(order):
            _signal(run.pid, signal.SIGCONT if on else signal.SIGSTOP)
            _wait(run, Path(folder), WINDOW_S)
            marks.append(_mark(metrics))
            progress.update(number + 1, len(order), f"window {number + 1} of {len(order)}")
        used_s = _processor_s(run.pid) - before_s
        content = metrics.read_bytes()
    return cost_of(system, trackers, windows(order, marks, content), used_s)


def drawn(pairs: int, seed: int) -> Iterator[bool]:
    """Yield whether trackers are on, a window at a time: once in each pair, in an order that the seed draws."""
    draw = random.Random(seed)
    for _ in range(pairs):
        first = draw.random() < 1 / 2
        yield from (first, not first)


def windows(order: Sequence[bool], marks: Sequence[tuple[int, float]], content: bytes) -> list[Window]:
    """Return the windows between marks, (bytes, seconds) of metrics.jsonl. Raises RunError if one has no step."""
    lines = [content.count(b"\n", 0, size) for size, _ in marks]
    found = [
        Window(on, marks[place + 1][1] - marks[place][1], lines[place + 1] - lines[place])
        for place, on in enumerate(order)
    ]
    if not all(window.steps for window in found):
        raise RunError(f"a window of {WINDOW_S:g} s saw no step end; choose a --system with shorter steps")
    return found


def cost_of(system: System, trackers: Sequence[str], measured: Sequence[Window], used_s: float) -> Cost:
    """Return the cost by pairs of windows, in which the side process took `used_s` of processor time."""
    pairs = [sorted(measured[place : place + 2]) for place in range(0, len(measured), 2)]  # off before on
    found = estimate([math.log(on.step_s / off.step_s) for off, on in pairs])
    assert found is not None and found.half_interval is not None, "there are two pairs or more"
    return Cost(
        system=system.name,
        trackers=tuple(trackers),
        ranks=system.world_size,
        processors=available_cores(),
        pairs=len(pairs),
        step_ms_on=1e3 * mean(on.step_s for _, on in pairs),
        step_ms_off=1e3 * mean(off.step_s for off, _ in pairs),
        slower=math.expm1(found.mean),
        low=math.expm1(found.mean - found.half_interval),
        high=math.expm1(found.mean + found.half_interval),
        processor_share=used_s / sum(on.seconds for _, on in pairs),
    )


@contextmanager
def _training(words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `bertbench train` in the body, its output in `folder`; end it after the body, with no step left to track."""
    environment = {**os.environ, "LOGDIR": str(folder), OUTSIDE: str(folder)}  # a stopped tracker ends with the bench
    environment.pop("MLFLOW_TRACKING_URI", None)  # a bench leaves nothing on a server
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bertbench", "train", *words],
            stdout=subprocess.DEVNULL, stderr=errors, env=environment,
        )  # fmt: skip
    try:
        yield process
    finally:
        _signal(process.pid, signal.SIGKILL)
        process.terminate()
        process.wait()


def _wait(run: subprocess.Popen[bytes], folder: Path, seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        run.wait(seconds)
        last = (folder / "stderr").read_text(errors="replace").strip().rpartition("\n")[2]
        raise RunError(f"the run ended by itself: {last or f'exit code {run.returncode}'}")


def _mark(metrics: Path) -> _Mark:
    stat = metrics.stat()
    return _Mark(stat.st_size, stat.st_mtime_ns / 1e9)


def _tree(pid: int) -> list[int]:
    return [pid, *(inner for child in children(pid) for inner in _tree(child))]


def _beside(run: int) -> list[int]:
    """Return the side process of a run, then the services that trackers have started from it."""
    for pid in _tree(run):
        with suppress(OSError):  # it has ended
            if _SIDE in Path(f"/proc/{pid}/cmdline").read_bytes():
                return _tree(pid)
    return []


def _signal(run: int, number: signal.Signals) -> None:
    for pid in _beside(run):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _processor_s(run: int) -> float:
    return sum(map(processor_s, _beside(run)))
