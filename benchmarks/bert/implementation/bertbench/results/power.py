"""Measure power during a run by one sampling process on each node, and write MLPerf's power files for a package.

The timed run isn't involved: the processes start before initialisation and end after the run.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertbench.common.errors import system_reason
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.machine import power_sampler as sampler
from bertbench.machine.meters import IPMI
from bertbench.results.files import ResultFiles
from bertbench.run_files.energy import NodeReadings, node_readings
from bertbench.run_files.formats import POWER
from compliance.read.log import read_events
from compliance.read.power_file import EFFICIENCY, ESTIMATE, READING, START, STOP
from compliance.read.record import RECORD_TOKEN
from compliance.read.run import RunFacts

_START_UP_S = 60
_END_S = 20  # long enough for several attempts at the last reading


@contextmanager
def power_sampled(system: System, world: World, files: ResultFiles | None) -> Iterator[None]:
    """Sample the power of every node within the context, if the system asks for it; all ranks must enter it.

    A node without a meter prints a warning, and the run continues.
    """
    if not system.power.measure:
        yield
        return
    if files:
        files.power.mkdir(parents=True, exist_ok=True)
    folder = Path(world.from_all(str(files.power) if files else "")[0])
    if world.ranks.local_rank:
        yield
        return
    file = folder / f"node_{world.rank // world.ranks.local_size}.jsonl"
    command = [sys.executable, "-P", "-m", sampler.__name__, str(file), str(system.power.hz), str(os.getpid())]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:  # no memory, or no more processes allowed
        _warn(f"the sampling process can't start ({system_reason(error)})")
        yield
        return
    with process:
        assert process.stdout is not None
        answered = select.select([process.stdout], [], [], _START_UP_S)[0]
        answer = process.stdout.readline().strip() if answered else f"{file}: there was no reading for {_START_UP_S} s"
        if answer != sampler.READY:
            _warn(answer or f"{file}: the sampling process ended")
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:  # a meter hangs, but the run's result doesn't wait for it
                process.kill()


def _warn(reason: str) -> None:
    print(f"warning: {reason}; the run continues without measuring energy", file=sys.stderr, flush=True)


def write_power(logs: Sequence[Path], results: Path, config: Mapping[str, Any]) -> None:
    """Write results/power/ in MLPerf's form, and a description of the measurement; nothing if no power was sampled."""
    measured = {log: node_readings(log) for log in logs}
    if not any(measured.values()):
        return
    settings = config[POWER]
    efficiency, interconnect = settings["conversion_efficiency"], settings["interconnect_watts"]
    for log, node_readings_of_run in measured.items():
        folder = results / POWER / log.stem
        folder.mkdir(parents=True)
        facts = RunFacts(read_events(log))
        for node in node_readings_of_run:
            (folder / f"{node.name}.txt").write_text(_node_file(node, facts, efficiency))
        if interconnect is not None:
            switch = _line(facts.started_ms or 0.0, "POINT_IN_TIME", ESTIMATE, interconnect, host="sw_0")
            (folder / "sw_0.txt").write_text(switch)
    description = _description(list(measured.values()), settings)
    (results / POWER / "description.json").write_text(json.dumps(description, indent=2) + "\n")


def _node_file(node: NodeReadings, facts: RunFacts, efficiency: float) -> str:
    readings = node.around(facts, efficiency)
    times = [time for time, _ in readings.readings] or [0.0]
    start, stop = readings.start_ms or times[0], readings.stop_ms or times[-1]
    lines = [
        _line(start, "INTERVAL_START", START, None, host=node.name),
        _line(start, "POINT_IN_TIME", EFFICIENCY, efficiency, measurement_type=_side(node)),
        *(_line(time, "POINT_IN_TIME", READING, watts, host=node.name) for time, watts in readings.readings),
        _line(stop, "INTERVAL_END", STOP, None, host=node.name),
    ]
    return "".join(lines)


def _line(time_ms: float, kind: str, key: str, value: float | None, **metadata: str) -> str:
    record = {"namespace": "", "time_ms": round(time_ms), "event_type": kind, "key": key, "value": value}
    return f"{RECORD_TOKEN}{json.dumps({**record, 'metadata': metadata})}\n"


def _side(node: NodeReadings) -> str:
    """Return on which side of the power supply the meters are: IPMI reads its input, the others read its output."""
    return "AC" if IPMI in node.meters else "DC"


def _description(runs: Sequence[Sequence[NodeReadings]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what was measured and how, for readers of the files."""
    measured = [node for run in runs for node in run]
    sides = sorted({_side(node) for node in measured})
    return {
        "meters": sorted({meter for node in measured for meter in node.meters}),
        "measured": "whole nodes"
        if sides == ["AC"]
        else "the parts of a node that the meters know: no fans, supplies or networks",
        "measurement_type": sides,
        "readings_per_second": settings["hz"],
        "missed_readings": sum(node.missed for node in measured),
        "conversion_efficiency": settings["conversion_efficiency"],
        "interconnect_watts": settings["interconnect_watts"],
        "hosts": {node.name: node.host for node in runs[0]},
    }
