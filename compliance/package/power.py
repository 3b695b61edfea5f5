"""Judge the power files of a result's runs by the official checks and the power rules, and compute the energy.

A package has them in results/<system>/<benchmark>/power/result_<n>/: node_<k>.txt for each node, and sw_<k>.txt for
each estimated part of the interconnect. No rule bounds the readings, so we don't judge whether they are plausible.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from compliance.read.power_file import EFFICIENCY, ESTIMATE, START, STOP, Readings, joules, read_power_file
from compliance.read.run import RunFacts, as_integer
from compliance.read.score import counted
from compliance.read.source import CannotJudge, found_at
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
"""The rules suggest extending a run until it has this many readings."""
_LONGEST_GAP_MS = 1_000 * 1.1
"""One reading per second, and 10 % for the clock."""
_KINDS = ("node", "sw")
_READ = re.compile(r"(node|sw)_.*\.txt")
"""Names of files that result_summarizer reads."""

Findings = list[Breach | Unchecked]


class ResultPower(NamedTuple):
    """The findings in the power files of a result, and its energy.

    `noncompliant` has the findings of each run that power_checker refuses, by log name, because one run of a result may
    fail. `unmeasured` has those of them without a file of a node. `energy_j` is the mean of the runs that count; None
    if unknown.
    """

    findings: Findings
    noncompliant: Mapping[str, Findings]
    unmeasured: frozenset[str]
    energy_j: float | None


class _RunPower(NamedTuple):
    findings: Findings
    energy_j: float | None


def judge_power(folder: Path, name: str, runs: Mapping[str, RunFacts | None], described: dict[str, str]) -> ResultPower:
    """Judge the power files of a result's runs, by log name, if there are any."""
    if not (folder / FOLDER).is_dir():
        return ResultPower([], {}, frozenset(), None)
    places = {log: folder / FOLDER / Path(log).stem for log in runs}
    files = {log: _names(place) for log, place in places.items()}
    refused = _refused_by_power_checker(files)
    findings: Findings = []
    noncompliant: dict[str, Findings] = {}
    energies: list[float | None] = []
    for log, facts in runs.items():
        run = f"{name}/{FOLDER}/{places[log].name}"
        power = _run(places[log], run, files[log], facts, described)
        energies.append(power.energy_j)
        if log in refused:
            refusal = POWER_FILES.breach(f"{run}: {', '.join(files[log][:5]) or 'no file'}")
            noncompliant[log] = [refusal, *power.findings]
        else:
            findings += power.findings
        others = [file for file in files[log] if not file.startswith(_KINDS)]
        if others:
            reason = f"{run}: the judge doesn't read other files: {', '.join(others[:5])}"
            findings.append(POWER_FILES.unchecked(reason, asked=False))
    measured = {log for log, names in files.items() if any(name.startswith("node") for name in names)}
    unmeasured = frozenset(noncompliant.keys() - measured)
    return ResultPower(findings, noncompliant, unmeasured, _mean_energy_j([*runs.values()], energies))


def _mean_energy_j(runs: Sequence[RunFacts | None], energies: Sequence[float | None]) -> float | None:
    """Return the mean energy of the runs that count; None if one of them has no energy, or if no run counts."""
    times = [facts.time_to_train_s if facts and facts.status == "success" else None for facts in runs]
    counting = [energy for energy, counts in zip(energies, counted(times), strict=True) if counts]
    known = [energy for energy in counting if energy is not None]
    if not known or len(known) < len(counting):
        return None
    return mean(known)


def _run(folder: Path, name: str, names: Sequence[str], facts: RunFacts | None, described: dict[str, str]) -> _RunPower:
    """Judge one run's files, and add up the energy if the log and all files state what it takes."""
    nodes = as_integer(described.get("number_of_nodes"))
    readable = [file for file in names if _READ.fullmatch(file)]
    measured = [file for file in readable if file.startswith("node_")]
    findings: Findings = []
    if not measured or (nodes is not None and len(measured) != nodes):
        expected = "one node_<k>.txt per node" if nodes is None else f"{nodes}, the system's number of nodes"
        findings.append(POWER_NODES.breach(f"{name}: number of measured nodes: {len(measured)}", expected))
    if len(measured) > 1 and not any(file.startswith("sw_") for file in readable):
        findings.append(POWER_INTERCONNECT.unchecked(f"{name}: several nodes, but no sw_<k>.txt"))
    if facts is None or facts.started_ms is None or facts.stopped_ms is None:
        return _RunPower(findings, None)
    seconds = (facts.stopped_ms - facts.started_ms) / 1e3
    total: float | None = 0.0
    for file in readable:
        try:
            readings = read_power_file(folder / file)
        except CannotJudge as problem:
            found = found_at(folder / file, problem)
            findings.append(POWER_FILES.breach(f"{name}/{file}: {found}", "a file that can be read"))
            total = None
            continue
        if file.startswith("node_"):
            findings += _node(f"{name}/{file}", readings, facts.started_ms, facts.stopped_ms)
            energy = joules(readings, 1e3 * seconds)
        else:
            findings += _switch(f"{name}/{file}", readings)
            watts = readings.estimate_w or 0.0
            energy = readings.efficiency * watts * seconds
        if energy is None:
            total = None
        elif total is not None:
            total += energy
    return _RunPower(findings, total if measured else None)


def _node(name: str, node: Readings, began: float, ended: float) -> Iterator[Breach | Unchecked]:
    if node.unsound:
        yield POWER_READINGS.breach(f"{name}: number of unusable records: {node.unsound}", "watts of at least 0")
    if not 0 < node.efficiency <= 1:
        yield POWER_READINGS.breach(f"{name}: {EFFICIENCY} {node.efficiency:g}", "a number above 0 and at most 1")
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
        few = f"{name}: {len(times)} readings during the run; the rules suggest {_FEWEST_READINGS} or more"
        yield POWER_COVERAGE.unchecked(few, asked=False)


def _switch(name: str, switch: Readings) -> Iterator[Breach]:
    if switch.estimate_w is None or switch.estimate_w < 0:
        yield POWER_READINGS.breach(f"{name}: no {ESTIMATE}", f"{ESTIMATE}, in watts")


def _refused_by_power_checker(files: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the runs without files, with wrongly numbered files, or with fewer or more files than most runs."""
    refused = {log for log, names in files.items() if not names}
    for kind in _KINDS:
        files_of_kind: dict[str, list[str]] = {}
        for log, names in files.items():
            if names:
                files_of_kind[log] = [name for name in names if name.startswith(kind)]
        runs_by_count = Counter(len(names) for names in files_of_kind.values())
        usual = max(runs_by_count, key=runs_by_count.__getitem__, default=0)
        for log, names in files_of_kind.items():
            if len(names) != usual or not _are_numbered(names):
                refused.add(log)
    return refused


def _are_numbered(names: Sequence[str]) -> bool:
    """Return whether each name ends in a number below the number of names, as node_0.txt does."""
    numbers = [as_integer(Path(name).stem.rpartition("_")[2]) for name in names]
    return all(number is not None and 0 <= number < len(names) for number in numbers)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
