"""Judge the power files of a result's runs by the official checks and the power rules, and compute the energy.

A package has them in results/<system>/<benchmark>/power/result_<n>/: node_<k>.txt for each node, and sw_<k>.txt for
each estimated part of the interconnect. Whether readings are plausible isn't judged: no rule bounds them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from compliance.read.power_file import EFFICIENCY, ESTIMATE, START, STOP, Readings, joules, read
from compliance.read.run import RunFacts, as_integer
from compliance.read.score import counted
from compliance.read.source import CannotJudge
from compliance.rules.power_measurement import (
    POWER_COVERAGE,
    POWER_FILES,
    POWER_INTERCONNECT,
    POWER_NODES,
    POWER_RATE,
    POWER_READINGS,
)
from compliance.rules.rule import Breach, Unchecked

FOLDER = "power"
_FEWEST_READINGS = 60
"""The rules suggest to extend a run until it has as many."""
_LONGEST_GAP_MS = 1_000 * 1.1
"""A reading at least every second, and a tenth for the clock."""
_NAME = re.compile(r"(node|sw)_(0|[1-9]\d{0,5})\.txt")

Findings = list[Breach | Unchecked]


class Power(NamedTuple):
    """What the power files of a result say: `energy_j` is the mean of the runs that count, None if unknown."""

    findings: Findings
    energy_j: float | None


class _RunPower(NamedTuple):
    findings: Findings
    energy_j: float | None


def judge_power(folder: Path, name: str, runs: Mapping[str, RunFacts | None], described: dict[str, str]) -> Power:
    """Judge the power files of a result's runs, by log name, if there are any."""
    if not (folder / FOLDER).is_dir():
        return Power([], None)
    findings: Findings = []
    energies: list[float | None] = []
    files: dict[str, list[str]] = {}
    for log, facts in runs.items():
        place = folder / FOLDER / Path(log).stem
        run = f"{name}/{FOLDER}/{place.name}"
        files[run] = _names(place)
        power = _run(place, run, files[run], facts, described)
        findings += power.findings
        energies.append(power.energy_j)
    findings += _named(files)
    times = [facts.time_to_train_s if facts and facts.status == "success" else None for facts in runs.values()]
    counting = [energy for energy, counts in zip(energies, counted(times), strict=True) if counts]
    known = [energy for energy in counting if energy is not None]
    return Power(findings, mean(known) if known and len(known) == len(counting) else None)


def _run(folder: Path, name: str, names: Sequence[str], facts: RunFacts | None, described: dict[str, str]) -> _RunPower:
    """Judge one run's files, and add up the energy if the log and all files give it."""
    nodes = as_integer(described.get("number_of_nodes"))
    measured = [file for file in names if file.startswith("node_")]
    findings: Findings = []
    if not measured or (nodes is not None and len(measured) != nodes):
        expected = "one node_<k>.txt a node" if nodes is None else f"{nodes}, the system's number of nodes"
        findings.append(POWER_NODES.breach(f"{name}: {len(measured)} measured nodes", expected))
    if len(measured) > 1 and not any(file.startswith("sw_") for file in names):
        findings.append(POWER_INTERCONNECT.unchecked(f"{name}: several nodes, and no sw_<k>.txt"))
    if facts is None or facts.started_ms is None or facts.stopped_ms is None:
        return _RunPower(findings, None)
    seconds = (facts.stopped_ms - facts.started_ms) / 1e3
    total: float | None = 0.0
    for file in filter(_NAME.fullmatch, names):
        try:
            readings = read(folder / file)
        except CannotJudge as problem:
            findings.append(POWER_FILES.breach(f"{name}/{file}: {problem}", "a file that can be read"))
            total = None
            continue
        if file.startswith("node_"):
            findings += _node(f"{name}/{file}", readings, facts.started_ms, facts.stopped_ms)
            energy = joules(readings, 1e3 * seconds)
        else:
            findings += _switch(f"{name}/{file}", readings)
            energy = readings.efficiency * (readings.estimate_w or 0.0) * seconds
        total = None if energy is None or total is None else total + energy
    return _RunPower(findings, total if measured else None)


def _node(name: str, node: Readings, began: float, ended: float) -> Iterator[Breach | Unchecked]:
    if node.unsound:
        yield POWER_READINGS.breach(f"{name}: {node.unsound} unusable records", "watts of at least 0")
    if not 0 < node.efficiency <= 1:
        yield POWER_READINGS.breach(f"{name}: {EFFICIENCY} {node.efficiency:g}", "a share of 1, above 0")
    if node.start_ms is None or node.start_ms > began or node.stop_ms is None or node.stop_ms < ended:
        expected = f"{START} before run_start and {STOP} after run_stop"
        yield POWER_COVERAGE.breach(f"{name}: doesn't cover the run", expected)
        return
    times = [time for time, _ in node.readings if began < time < ended]
    longest = max(now - then for then, now in pairwise([began, *times, ended]))
    too_few = (len(times) + 1) * _LONGEST_GAP_MS < ended - began
    if longest > 2 * _LONGEST_GAP_MS or too_few:  # a meter may miss a reading
        yield POWER_RATE.breach(f"{name}: {longest / 1e3:.1f} s without a reading", "a reading at least every second")
    if len(times) < _FEWEST_READINGS:
        yield POWER_COVERAGE.unchecked(f"{name}: {len(times)} readings of the run, of at least {_FEWEST_READINGS}")


def _switch(name: str, switch: Readings) -> Iterator[Breach]:
    if switch.estimate_w is None or switch.estimate_w < 0:
        yield POWER_READINGS.breach(f"{name}: no {ESTIMATE}", f"{ESTIMATE}, in watts")


def _named(files: Mapping[str, Sequence[str]]) -> Iterator[Breach]:
    """Find runs without files, with names out of the row, or with other files than most runs, as power_checker does."""
    usual = max(files.values(), key=list(files.values()).count, default=())
    for run, names in files.items():
        kinds = Counter(file.partition("_")[0] for file in names)
        row = sorted(f"{kind}_{number}.txt" for kind in ("node", "sw") for number in range(kinds[kind]))
        if not names or names != row or names != usual:
            yield POWER_FILES.breach(f"{run}: {', '.join(names[:5]) or 'no file'}")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
