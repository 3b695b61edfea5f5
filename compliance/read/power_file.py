"""Read one MLPerf power file, with the readings of a node's meters during a run, and compute the energy."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from compliance.read.record import NoRecord, parse_record, record_lines
from compliance.read.run import number
from compliance.read.source import open_plain

START = "power_measurement_start"
STOP = "power_measurement_stop"
READING = "power_reading"
EFFICIENCY = "conversion_eff"
ESTIMATE = "interconnect_power_est"
_TIMES = (START, STOP)
_VALUES = (EFFICIENCY, ESTIMATE)
_LARGEST = 50 << 20  # bytes: the limit for a file in a submission, and a day at two readings per second


class Readings(NamedTuple):
    """The content of one file; `readings` has the time in ms and the watts of each reading, ordered by time."""

    start_ms: float | None
    stop_ms: float | None
    readings: Sequence[tuple[float, float]]
    efficiency: float = 1.0
    estimate_w: float | None = None
    unsound: int = 0
    """Number of lines that aren't records, and of records that repeat a field or lack a time, or whose value isn't a
    power or contradicts an earlier one.
    """


def joules(node: Readings, time_to_train_ms: float) -> float | None:
    """Return a node's energy by the official formula; None if there is no start, or no reading after it.

    Each reading covers the time since the previous one. The sum goes from the start to the stop, or to the last reading
    if there is no stop, and is scaled to the time to train.
    """
    if node.start_ms is None or not node.readings:
        return None
    latest = math.inf if node.stop_ms is None else node.stop_ms
    within = [(time, watts) for time, watts in node.readings if node.start_ms <= time <= latest]
    end = node.stop_ms
    if end is None:
        end = within[-1][0] if within else node.start_ms
    if end <= node.start_ms:
        return None
    times = [node.start_ms, *(time for time, _ in within)]
    energy = sum(watts * (now - then) for (then, now), (_, watts) in zip(pairwise(times), within, strict=True))
    return node.efficiency * energy * time_to_train_ms / (end - node.start_ms) / 1e3


def read_power_file(path: Path) -> Readings:
    """Return the content of a power file. Raises CannotJudge if it can't be read safely."""
    stated: dict[str, float] = {}
    readings: list[tuple[float, float]] = []
    unsound = 0
    with open_plain(path, _LARGEST) as stream:
        for line, text in record_lines(stream):
            try:
                record = parse_record(line, text)
            except NoRecord:
                unsound += 1
                continue
            if record.repeated:
                unsound += 1
                continue
            time = number(record.timestamp) if record.has_time else None
            value = number(record.value["value"])
            if record.key == READING:
                if time is not None and value is not None and value >= 0:
                    readings.append((time, value))
                else:
                    unsound += 1
            elif record.key in (*_TIMES, *_VALUES):
                statement = time if record.key in _TIMES else value
                if statement is None or stated.setdefault(record.key, statement) != statement:
                    unsound += 1
    return Readings(
        start_ms=stated.get(START),
        stop_ms=stated.get(STOP),
        readings=sorted(readings),
        efficiency=stated.get(EFFICIENCY, 1.0),
        estimate_w=stated.get(ESTIMATE),
        unsound=unsound,
    )
