"""Sample a node's power during a run, in a separate process.

It is started as `python -m bertbench.machine.power_sampler FILE HZ PARENT`.

Each reading adds a line to FILE: `{"time_ms": ..., "watts": ..., "parts": {...}}`, the power since the last reading.
A reading that fails adds `{"time_ms": ..., "missed": WHY}`, and sampling continues. The first line names the meters.
The process ends on SIGTERM, or when the process that started it ends.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from platform import node
from typing import IO

from bertbench.common.children import die_with_parent
from bertbench.common.errors import system_reason
from bertbench.machine.meters import IPMI, Meter, find_meters

_FIRST_S = 0.1  # time between the first two readings of a counter
_ATTEMPTS = 5  # for a first reading, and for the readings at a run's start and end
_MANY_MISSED = 0.01  # share of all readings
READY = "ready"
"""The process prints this when it starts to take readings."""


class PowerSampler:
    """Appends readings of meters to a file; warns of the first reading that fails."""

    def __init__(self, file: IO[str], meters: Sequence[Meter]) -> None:
        self._file = file
        self._meters = meters
        names = [meter.name for meter in meters]
        self._counted = [IPMI] if IPMI in names else names  # IPMI's node includes the parts of the others
        self._taken = self._missed = 0
        self._write({"node": node(), "meters": names})

    def take(self, attempts: int) -> None:
        """Take one reading; if all attempts fail, note the reason instead."""
        for attempt in range(attempts):
            if attempt:
                time.sleep(_FIRST_S)
            missed = self._read()
            if missed is None:
                self._taken += 1
                return
        if not self._missed:
            _warn(f"a power reading is missing ({missed}); sampling continues")
        self._missed += 1
        with suppress(OSError):  # of a full disk, say
            self._write({"missed": missed})

    def close(self) -> None:
        """Warn if many readings are missing; their energy is estimated from the readings around them."""
        if self._missed > _MANY_MISSED * (self._taken + self._missed):
            _warn(f"{self._missed:,} of {self._taken + self._missed:,} power readings are missing")

    def _read(self) -> str | None:
        """Read all meters and write a line; return None, or the reason for a failure."""
        parts: dict[str, dict[str, float]] = {}
        failures: dict[str, str] = {}
        for meter in self._meters:
            try:
                parts[meter.name] = meter.watts()
            except OSError as error:
                failures[meter.name] = system_reason(error)
        missed = [failures[name] for name in self._counted if name in failures]
        if missed:
            return "; ".join(missed)
        watts = sum(sum(parts[name].values()) for name in self._counted)
        try:
            self._write({"watts": round(watts, 3), "parts": parts})
        except OSError as error:
            return f"{self._file.name}: cannot be written ({system_reason(error)})"
        return None

    def _write(self, content: dict[str, object]) -> None:
        self._file.write(json.dumps({"time_ms": round(1e3 * time.time()), **content}) + "\n")
        self._file.flush()  # if the disk is full, the line stays in the buffer and is written with the next one


def main(name: str, hz: str, parent: str) -> int:
    """Sample until stopped; exit with 1 if the node has no meter that gives readings."""
    die_with_parent(int(parent))
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    of_node = find_meters()
    meters, faulty = _tried(of_node.usable)
    faulty += of_node.faulty
    if not meters:
        print(f"{node()} has no power meter: {'; '.join((*faulty, *of_node.absent))}", flush=True)
        return 1
    names = [meter.name for meter in meters]
    if faulty and IPMI not in names:
        _warn(f"{'; '.join(faulty)}; power is measured only by {' and '.join(names)}")
    try:
        with Path(name).open("a", encoding="utf-8") as file:
            sampler = PowerSampler(file, meters)
            for attempts in _moments(1 / float(hz), stopped):
                sampler.take(attempts)
            sampler.close()
    except OSError as error:
        _warn(f"power sampling ended: {name}: {system_reason(error)}")
        return 1
    return 0


def _tried(meters: Sequence[Meter]) -> tuple[list[Meter], list[str]]:
    """Return the meters that give a reading now, and why others don't."""
    sound, faulty = [], []
    for meter in meters:
        reason = "its counters don't move"
        for _ in range(_ATTEMPTS):
            try:
                if meter.watts():
                    sound.append(meter)
                    break
            except OSError as error:
                reason = system_reason(error)
            time.sleep(_FIRST_S)
        else:
            faulty.append(reason)
    return sound, faulty


def _moments(interval_s: float, stopped: list[int]) -> Iterator[int]:
    """Yield when a reading is due, with its number of attempts: before the run, at each interval, and after the stop.

    If a reading takes longer than the interval, the next one is due at once.
    """
    time.sleep(_FIRST_S)
    yield _ATTEMPTS
    print(READY, flush=True)
    due = time.monotonic() + interval_s
    while not stopped:
        time.sleep(max(0.0, due - time.monotonic()))
        yield _ATTEMPTS if stopped else 1
        due = max(due + interval_s, time.monotonic())


def _warn(text: str) -> None:
    print(f"warning: {node()}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
