"""Sample a node's power beside a run, in a process of its own: `python -m bertbench.machine.power FILE HZ PARENT`.

Each reading adds a line to FILE: `{"time_ms": ..., "watts": ..., "parts": {...}}`, the power since the last reading.
The first line names the meters. The process ends by SIGTERM, or with the process that started it.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from platform import node
from typing import IO

from bertbench.common.children import die_with_parent
from bertbench.common.errors import system_reason
from bertbench.machine.meters import IPMI, Meter, find

_FIRST_S = 0.1  # over which counters are read for the first time
READY = "ready"
"""The process prints it once it takes readings."""


def main(name: str, hz: str, parent: str) -> int:
    """Sample until stopped; exit with 1 if the node has no meter, or one fails."""
    die_with_parent(int(parent))
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    meters, absent = find()
    if not meters:
        print(f"{node()} has no power meter: {'; '.join(absent)}", flush=True)
        return 1
    try:
        with Path(name).open("a", encoding="utf-8", buffering=1) as file:
            file.write(json.dumps({"node": node(), "meters": [meter.name for meter in meters]}) + "\n")
            for meter in meters:
                meter.watts()  # counters: from here
            for _ in _moments(1 / float(hz), stopped):
                _record(file, meters)
    except OSError as error:
        print(f"{node()}: power sampling stopped: {system_reason(error)}", file=sys.stderr, flush=True)
        return 1
    return 0


def _moments(interval_s: float, stopped: list[int]) -> Iterator[None]:
    """Yield when to read: once before the run, then regularly, and once after the stop.

    After a reading longer than the interval, the next one follows at once.
    """
    time.sleep(_FIRST_S)
    yield
    print(READY, flush=True)
    due = time.monotonic() + interval_s
    while not stopped:
        time.sleep(max(0.0, due - time.monotonic()))
        yield
        due = max(due + interval_s, time.monotonic())


def _record(file: IO[str], meters: Sequence[Meter]) -> None:
    parts = {meter.name: meter.watts() for meter in meters}
    counted = [parts[IPMI]] if IPMI in parts else parts.values()
    watts = round(sum(sum(meter.values()) for meter in counted), 3)
    file.write(json.dumps({"time_ms": round(1e3 * time.time()), "watts": watts, "parts": parts}) + "\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
