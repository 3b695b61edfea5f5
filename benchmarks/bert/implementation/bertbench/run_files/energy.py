"""Compute the energy of runs from sampled power: result_<n>/power/node_<k>.jsonl, written by results/power.py.

Energy is computed as MLPerf does. Each reading covers the time since the previous one. The readings from the last one
before run_start to the first one after run_stop are added up and scaled to the time to train. Meters of processors and
GPUs don't include the rest of a node.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertbench.run_files.formats import POWER
from bertbench.run_files.json_files import json_lines
from bertbench.run_files.run_settings import configured
from compliance.read.power_file import Readings, joules
from compliance.read.run import RunFacts, number


@dataclass(frozen=True)
class NodeReadings:
    """The readings of a node's meters."""

    name: str
    host: str
    meters: list[str]
    readings: list[tuple[float, float]]
    """Times in ms since 1970 with watts, in order of time."""
    missed: int = 0
    """The number of failed readings; their energy is estimated from the readings around them."""

    def around(self, facts: RunFacts, efficiency: float) -> Readings:
        """Return the timed run's readings, from the last before run_start to the first after run_stop."""
        if facts.started_ms is None or facts.stopped_ms is None:
            return Readings(None, None, [])
        times = [time for time, _ in self.readings]
        first_inside = bisect_right(times, facts.started_ms)
        first_after = bisect_left(times, facts.stopped_ms)
        before_ms = times[first_inside - 1] if first_inside else None
        after_ms = times[first_after] if first_after < len(times) else None
        return Readings(before_ms, after_ms, self.readings[first_inside : first_after + 1], efficiency)


def node_readings(log: Path) -> list[NodeReadings]:
    """Return the readings of each node of a run, in the order of node numbers; none if no power was sampled."""
    files = (log.with_suffix("") / POWER).glob("node_*.jsonl")
    by_number = sorted(files, key=lambda file: (len(file.name), file.name))
    return [_read(file) for file in by_number]


def energy(log: Path, facts: RunFacts) -> dict[str, Any] | None:
    """Return a run's joules and each node's mean watts; None unless power was sampled throughout."""
    time_s = facts.time_to_train_s
    nodes = node_readings(log)
    if not nodes or not time_s:
        return None
    settings = configured(log)
    efficiency = number(settings.get(f"{POWER}.conversion_efficiency")) or 1.0
    watts = {}
    for node in nodes:
        node_joules = joules(node.around(facts, efficiency), 1e3 * time_s)
        if node_joules is None:
            return None
        watts[node.name] = node_joules / time_s
    if interconnect := number(settings.get(f"{POWER}.interconnect_watts")):
        watts["interconnect"] = interconnect
    meters = {meter for node in nodes for meter in node.meters}
    return {
        "joules": sum(watts.values()) * time_s,
        "watts": watts,
        "meters": sorted(meters),
        "missed_readings": sum(node.missed for node in nodes),
    }


def _read(file: Path) -> NodeReadings:
    host = ""
    meters: list[str] = []
    readings = []
    missed = 0
    for line in json_lines(file):
        time_ms = number(line.get("time_ms"))
        watts = number(line.get("watts"))
        if "missed" in line:
            missed += 1
        elif time_ms is not None and watts is not None and watts > 0:  # every running node draws power
            readings.append((time_ms, watts))
        elif isinstance(line.get("meters"), list):
            host = str(line.get("node"))
            meters = [str(meter) for meter in line["meters"]]
    return NodeReadings(file.stem, host, meters, sorted(readings), missed)
