"""Judge the power files of a result's runs by the rules and the official tools, and compute the energy.

A package has them in results/<system>/<benchmark>/power/result_<n>/: node_<k>.txt per node, and sw_<k>.txt per
estimated part of the interconnect (mlcommons/training_policies, power_measurement).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from compliance import official_tools
from compliance.finding import Finding, Severity
from compliance.power_file import EFFICIENCY, ESTIMATE, START, STOP, Readings, read
from compliance.run import RunFacts
from compliance.score import counted
from compliance.source import CannotJudge

FOLDER = "power"
LEAST_READINGS = 60
_LONGEST_GAP_MS = 1_000 * 1.1  # a reading at least every second, and a tenth for the clock
_NAME = re.compile(r"(node|sw)_(0|[1-9]\d{0,5})\.txt")
_MEND = "measure every node of every run again, from before run_start to after run_stop (docs/running.md)"


class Power(NamedTuple):
    """The verdict on a result's power files; `energy_j` is the mean of the runs whose time counts, None if unknown."""

    findings: list[Finding]
    energy_j: float | None


def judge(folder: Path, name: str, runs: Mapping[str, RunFacts | None], nodes: int | None) -> Power | None:
    """Judge the power files of a result's runs, by log name; return None if there are none.

    `nodes` is the number of nodes in the system description.
    """
    if not (folder / FOLDER).is_dir():
        return None
    findings: list[Finding] = []
    energies: list[float | None] = []
    for log, facts in runs.items():
        found, energy = _run(folder / FOLDER / Path(log).stem, f"{name}/{FOLDER}/{Path(log).stem}", facts, nodes)
        findings += found
        energies.append(energy)
    files = {Path(log).stem: _names(folder / FOLDER / Path(log).stem) for log in runs}
    findings += _unlike(f"{name}/{FOLDER}", files)
    for wrong in official_tools.power_problems(folder.parent.name, folder.name, files):
        findings.append(_finding("power-files", f"{name}/{FOLDER}: {wrong}", "files that the official checker passes"))
    times = [facts.time_to_train_s if facts and facts.status == "success" else None for facts in runs.values()]
    counting = [energy for energy, counts in zip(energies, counted(times), strict=True) if counts]
    known = [energy for energy in counting if energy is not None]
    return Power(findings, mean(known) if known and len(known) == len(counting) else None)


def _run(folder: Path, name: str, facts: RunFacts | None, nodes: int | None) -> tuple[list[Finding], float | None]:
    """Judge one run's files; return the findings, and its energy if the log and all files give it."""
    names = _names(folder)
    measured = [file for file in names if file.startswith("node_")]
    findings = []
    if odd := [file for file in names if not _NAME.fullmatch(file)]:
        findings.append(_finding("power-files", f"{name}: {', '.join(odd[:5])}", "node_<k>.txt and sw_<k>.txt only"))
    if not measured or (nodes is not None and len(measured) != nodes):
        expected = "one node_<k>.txt a node" if nodes is None else f"{nodes}, the system's number of nodes"
        findings.append(_finding("power-nodes", f"{name}: {len(measured)} measured nodes", expected))
    if len(measured) > 1 and not any(file.startswith("sw_") for file in names):
        expected = "the interconnect's power, measured or estimated, in sw_<k>.txt"
        findings.append(_finding("power-interconnect", f"{name}: no sw_<k>.txt", expected, "warning"))
    if facts is None or facts.time_to_train_s is None:
        return findings, None
    total: float | None = 0.0
    for file in filter(_NAME.fullmatch, names):
        try:
            readings = read(folder / file)
        except CannotJudge as problem:
            findings.append(_finding("power-files", f"{name}/{file}: {problem}", "a file that can be read"))
            total = None
            continue
        node = file.startswith("node_")
        findings += _node(f"{name}/{file}", readings, facts) if node else _switch(f"{name}/{file}", readings)
        energy = official_tools.energy(readings, 1e3 * facts.time_to_train_s, node)
        total = None if energy is None or total is None else total + energy
    return findings, total if measured else None


def _node(name: str, node: Readings, facts: RunFacts) -> Iterator[Finding]:
    if node.unsound:
        yield _finding("power-readings", f"{name}: {node.unsound} unusable records", "watts of at least 0")
    if not 0 < node.efficiency <= 1:
        yield _finding("power-readings", f"{name}: {EFFICIENCY} {node.efficiency:g}", "a share of 1, above 0")
    began, ended = facts.started_ms, facts.stopped_ms
    assert began is not None and ended is not None, "a run with a time to train has both"
    if node.start_ms is None or node.start_ms > began or node.stop_ms is None or node.stop_ms < ended:
        expected = f"{START} before run_start and {STOP} after run_stop"
        yield _finding("power-coverage", f"{name}: doesn't cover the run", expected)
        return
    timed = [time for time, _ in node.readings if began < time < ended]
    gap = max((now - then for then, now in pairwise([began, *timed, ended])), default=0.0)
    if gap > _LONGEST_GAP_MS:
        yield _finding("power-rate", f"{name}: {gap / 1e3:.1f} s without a reading", "a reading at least every second")
    if len(timed) < LEAST_READINGS:
        expected = f"at least {LEAST_READINGS}, if need be in a longer run"
        yield _finding("power-rate", f"{name}: {len(timed)} readings of the run", expected, "warning")


def _switch(name: str, switch: Readings) -> Iterator[Finding]:
    if switch.estimate_w is None or switch.estimate_w < 0:
        yield _finding("power-readings", f"{name}: no {ESTIMATE}", f"{ESTIMATE}, in watts")


def _unlike(name: str, files: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    numbers = Counter(len(names) for names in files.values())
    if len(numbers) > 1:
        usual, _ = numbers.most_common(1)[0]
        other = [run for run, names in files.items() if len(names) != usual]
        yield _finding(
            "power-files", f"{name}: a different number of files in {', '.join(other[:5])}", f"{usual} in each"
        )


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _finding(rule: str, found: str, expected: str, severity: Severity = "error") -> Finding:
    return Finding(rule, severity, None, found, expected, _MEND)
