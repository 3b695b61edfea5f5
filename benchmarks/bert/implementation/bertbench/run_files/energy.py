"""Compute the energy of runs from sampled power: result_<n>/power/node_<k>.jsonl, written by machine/power.py.

Energy follows MLPerf: each reading holds since the one before, from the last reading before run_start to the first
after run_stop, scaled to the time to train. Meters of processors and GPUs leave out the rest of a node.
"""

from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.run_files.formats import POWER
from bertbench.run_files.reading import recorded
from bertbench.run_files.settings import configured
from compliance.read.power_file import Readings, joules
from compliance.read.run import RunFacts, number


class NodeReadings(NamedTuple):
    """The readings of a node's meters: time in ms since 1970 and watts, in order of time."""

    name: str
    host: str
    meters: list[str]
    readings: list[tuple[float, float]]
    missed: int = 0
    """Readings that failed; the energy of their time is that of the readings around them."""

    def around(self, facts: RunFacts, efficiency: float) -> Readings:
        """Return the timed run's readings, from the last before run_start to the first after run_stop."""
        began, ended = facts.started_ms, facts.stopped_ms
        if began is None or ended is None:
            return Readings(None, None, [])
        times = [time for time, _ in self.readings]
        first, last = bisect_right(times, began), bisect_left(times, ended)
        start, stop = times[first - 1] if first else None, times[last] if last < len(times) else None
        return Readings(start, stop, self.readings[first : last + 1], efficiency)


def nodes(log: Path) -> list[NodeReadings]:
    """Return the readings of each node of a run, by number; none if no power was sampled."""
    files = (log.with_suffix("") / POWER).glob("node_*.jsonl")
    return [_read(file) for file in sorted(files, key=lambda file: (len(file.name), file.name))]


def energy(log: Path, facts: RunFacts) -> dict[str, Any] | None:
    """Return a run's joules and each node's mean watts; None unless power was sampled throughout."""
    time_s, found = facts.time_to_train_s, nodes(log)
    if not found or not time_s:
        return None
    settings = configured(log)
    efficiency = number(settings.get(f"{POWER}.conversion_efficiency")) or 1.0
    interconnect = number(settings.get(f"{POWER}.interconnect_watts"))
    each = {node.name: joules(node.around(facts, efficiency), 1e3 * time_s) for node in found}
    watts = {name: spent / time_s for name, spent in each.items() if spent is not None}
    if len(watts) < len(found):
        return None
    if interconnect:
        watts["interconnect"] = interconnect
    meters = sorted({meter for node in found for meter in node.meters})
    missed = sum(node.missed for node in found)
    return {"joules": sum(watts.values()) * time_s, "watts": watts, "meters": meters, "missed_readings": missed}


def _read(file: Path) -> NodeReadings:
    host, meters, readings, missed = "", [], [], 0
    for line in recorded(file):
        time, watts = number(line.get("time_ms")), number(line.get("watts"))
        if "missed" in line:
            missed += 1
        elif time is not None and watts is not None and watts > 0:  # no running node draws nothing
            readings.append((time, watts))
        elif isinstance(line.get("meters"), list):
            host, meters = str(line.get("node")), [str(meter) for meter in line["meters"]]
    return NodeReadings(file.stem, host, meters, sorted(readings), missed)
