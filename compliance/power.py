"""Judge the power files of a result's runs by the rules and the official tools, and compute the energy.

A package has them in results/<system>/<benchmark>/power/result_<n>/: node_<k>.txt per node, and sw_<k>.txt per
estimated part of the interconnect (mlcommons/training_policies, power_measurement).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from statistics import mean, median

from compliance.alike import follows
from compliance.finding import Finding, Findings, Severity
from compliance.hardware import LEAST_JOULES_A_SAMPLE
from compliance.power_file import EFFICIENCY, ESTIMATE, START, STOP, Readings, joules, read
from compliance.record import distinct, shown
from compliance.run import RunFacts, as_integer
from compliance.score import counted
from compliance.source import CannotJudge

FOLDER = "power"
LEAST_READINGS = 60
_LONGEST_GAP_MS = 1_000 * 1.1  # a reading at least every second, and a tenth for the clock
# Physics: power supplies lose up to 30 % at low load; one node draws no less than a fan, and no more than a rack.
_LEAST_EFFICIENCY, _LEAST_W, _MOST_W = 0.7, 10, 150_000
_HOST_W, _ACCELERATOR_W = 6_000, 2_000  # of a described node; a GB300 takes 1,400 W
_LEAST_SHARE = 0.12  # of the median; an idle node of accelerators draws a fifth of its power in training
_LEAST_OF_THIRD = 0.8  # of a run, to another or to all readings
_APART = 0.15  # of all readings, which count, from those of the run
_OTHER = 0.1  # from the median of a system's runs, which do the same work
_FEWEST_STEPS = 3  # a meter in whole watts goes up, down, or stays
_FEWEST_ALIKE = 20  # sequences of readings; a meter with few values repeats some by chance
_NAME = re.compile(r"(node|sw)_(0|[1-9]\d{0,5})\.txt")
_MEND = "measure every node of every run again, from before run_start to after run_stop (docs/running.md)"


def judge(
    folder: Path, name: str, runs: Mapping[str, RunFacts | None], described: dict[str, str]
) -> tuple[list[Finding], float | None]:
    """Judge the power files of a result's runs, by log name, if there are any.

    Return the findings, and the mean energy of the runs whose time counts in J, None if unknown. `described` are the
    fields of the system description.
    """
    if not (folder / FOLDER).is_dir():
        return [], None
    findings: list[Finding] = []
    energies: list[float | None] = []
    files: dict[str, list[str]] = {}
    measured: dict[str, list[Readings]] = {}
    watts: dict[str, float] = {}
    for log, facts in runs.items():
        place = folder / FOLDER / Path(log).stem
        run = f"{name}/{FOLDER}/{place.name}"
        files[run] = _names(place)
        found, energy, measured[run] = _run(place, run, files[run], facts, described)
        findings += found
        energies.append(energy)
        if facts and facts.time_to_train_s and energy is not None:
            watts[run] = energy / facts.time_to_train_s
            least = LEAST_JOULES_A_SAMPLE * (facts.samples or 0.0)
            if facts.division == "closed" and energy < least:
                findings.append(_finding("power-plausible", f"{run}: {energy:,.0f} J", f"at least {least:,.0f} J"))
    findings += _compared(watts, measured)
    findings += _named(files)
    times = [facts.time_to_train_s if facts and facts.status == "success" else None for facts in runs.values()]
    counting = [energy for energy, counts in zip(energies, counted(times), strict=True) if counts]
    known = [energy for energy in counting if energy is not None]
    return findings, mean(known) if known and len(known) == len(counting) else None


def _run(
    folder: Path, name: str, names: Sequence[str], facts: RunFacts | None, described: dict[str, str]
) -> tuple[list[Finding], float | None, list[Readings]]:
    """Judge one run's files; return the findings, its energy if the log and all files give it, and what they hold."""
    nodes, each = (as_integer(described.get(key)) for key in ("number_of_nodes", "accelerators_per_node"))
    most = _HOST_W + _ACCELERATOR_W * each if each else _MOST_W
    measured = [file for file in names if file.startswith("node_")]
    findings = []
    if not measured or (nodes is not None and len(measured) != nodes):
        expected = "one node_<k>.txt a node" if nodes is None else f"{nodes}, the system's number of nodes"
        findings.append(_finding("power-nodes", f"{name}: {len(measured)} measured nodes", expected))
    if len(measured) > 1 and not any(file.startswith("sw_") for file in names):
        expected = "the interconnect's power, measured or estimated, in sw_<k>.txt"
        findings.append(_finding("power-interconnect", f"{name}: no sw_<k>.txt", expected, "warning"))
    if facts is None or facts.time_to_train_s is None:
        return findings, None, []
    total: float | None = 0.0
    contents: list[Readings] = []
    for file in filter(_NAME.fullmatch, names):
        try:
            readings = read(folder / file)
        except CannotJudge as problem:
            findings.append(_finding("power-files", f"{name}/{file}: {problem}", "a file that can be read"))
            total = None
            continue
        contents.append(readings)
        node = file.startswith("node_")
        findings += _node(f"{name}/{file}", readings, facts, most) if node else _switch(f"{name}/{file}", readings)
        estimate = readings.efficiency * (readings.estimate_w or 0.0) * facts.time_to_train_s
        energy = joules(readings, 1e3 * facts.time_to_train_s) if node else estimate
        total = None if energy is None or total is None else total + energy
    return findings, total if measured else None, contents


def _node(name: str, node: Readings, facts: RunFacts, most: int) -> Findings:
    if node.unsound:
        yield _finding("power-readings", f"{name}: {node.unsound} unusable records", "watts of at least 0")
    if not 0 < node.efficiency <= 1:
        yield _finding("power-readings", f"{name}: {EFFICIENCY} {node.efficiency:g}", "a share of 1, above 0")
    elif node.efficiency < _LEAST_EFFICIENCY:
        yield _finding(
            "power-plausible", f"{name}: {EFFICIENCY} {node.efficiency:g}",
            f"at least {_LEAST_EFFICIENCY}, as power supplies have", "warning",
        )  # fmt: skip
    began, ended = facts.started_ms, facts.stopped_ms
    assert began is not None and ended is not None, "a run with a time to train has both"
    if node.start_ms is None or node.start_ms > began or node.stop_ms is None or node.stop_ms < ended:
        yield _finding(
            "power-coverage", f"{name}: doesn't cover the run", f"{START} before run_start and {STOP} after run_stop"
        )
        return
    timed = [time for time, _ in node.readings if began < time < ended]
    levels = [watts for time, watts in node.readings if began < time < ended]
    least = max(_LEAST_W, _LEAST_SHARE * median(levels)) if levels else 0.0
    if odd := [watts for watts in levels if not least <= watts <= most]:
        found = f"{name}: {len(odd)} readings such as {odd[0]:g} W"
        yield _finding("power-plausible", found, f"{least:,.0f} to {most:,} W of a node", "warning")
    different = set(zip(*(levels[at:] for at in range(4)), strict=False))
    steps = {round(now - then, 6) for then, now in pairwise(levels)}
    third = len(levels) // 3
    parts = [levels[third * part : third * (part + 1)] for part in range(3)]
    whole = [watts for _, watts in node.readings]  # all of it counts
    means = [mean(part) for part in (*parts, whole) if part]
    often = Counter(levels).most_common(1)[0][1] if levels else 0
    few = (
        2 * often > len(timed) or len(different) < len(timed) / 4 or len(steps) < _FEWEST_STEPS
        or len(set(timed)) < 0.6 * len(timed)  # a clock of seconds repeats some
    )  # fmt: skip
    if len(timed) >= LEAST_READINGS and (
        few or min(means[:3]) < _LEAST_OF_THIRD * max(means) or means[-1] < (1 - _APART) * mean(means[:3])
    ):
        found = f"{name}: the same readings or times again and again, or a part of them at much less power"
        yield _finding("power-plausible", found, "readings that vary as a meter's do", "warning")
    gap = max((now - then for then, now in pairwise([began, *timed, ended])), default=0.0)
    if gap > 2 * _LONGEST_GAP_MS or (len(timed) + 1) * _LONGEST_GAP_MS < ended - began:  # a meter may miss a reading
        yield _finding("power-rate", f"{name}: {gap / 1e3:.1f} s without a reading", "a reading at least every second")
    if len(timed) < LEAST_READINGS:
        expected = f"at least {LEAST_READINGS}, if need be in a longer run"
        yield _finding("power-rate", f"{name}: {len(timed)} readings of the run", expected, "warning")


def _compared(watts: Mapping[str, float], measured: Mapping[str, Sequence[Readings]]) -> Findings:
    """Find runs that draw another power than their siblings, count it otherwise, or share their readings."""
    usual = median(watts.values()) if watts else 0.0
    if other := [run for run, drawn in watts.items() if abs(drawn - usual) > _OTHER * usual]:
        found, expected = f"{other[0]}: {watts[other[0]]:,.0f} W", f"about {usual:,.0f} W, as other runs"
        yield _finding("power-plausible", found, expected, "warning")
    stated = [sorted((one.efficiency, one.estimate_w or 0.0) for one in files) for files in measured.values() if files]
    if len(different := distinct(stated)) > 1:
        found = f"{len(different)} sets of {EFFICIENCY} and {ESTIMATE}, such as {shown(different[:2])}"
        yield _finding("power-plausible", found, "one for the runs of a system", "warning")
    watts_of = {
        f"{run}, file {index}": [value for _, value in one.readings]
        for run, files in measured.items() for index, one in enumerate(files)
    }  # fmt: skip
    sequences = [(file, _sequences(values)) for file, values in watts_of.items()]
    for (one, its), (other_one, others) in combinations(sequences, 2):
        shared = 2 * len(its & others) > max(_FEWEST_ALIKE, min(len(its), len(others)))
        same_file = one.rpartition(" ")[2] == other_one.rpartition(" ")[2]
        if shared or (same_file and follows(watts_of[one], watts_of[other_one])):
            yield _finding("power-plausible", f"{other_one}: readings of {one}", "readings of its own", "warning")
            break


def _sequences(watts: Sequence[float]) -> frozenset[tuple[float, ...]]:
    """Return four readings at a time, forwards or backwards; none if a meter's few values repeat them by chance."""
    found = frozenset(max(one, one[::-1]) for one in zip(watts, watts[1:], watts[2:], watts[3:], strict=False))
    return found if len(set(watts)) ** 4 > _FEWEST_ALIKE * len(found) else frozenset()


def _switch(name: str, switch: Readings) -> Findings:
    if switch.estimate_w is None or switch.estimate_w < 0:
        yield _finding("power-readings", f"{name}: no {ESTIMATE}", f"{ESTIMATE}, in watts")


def _named(files: Mapping[str, Sequence[str]]) -> Findings:
    """Find runs without files, with names out of the row, or with other files than most runs, as power_checker does."""
    usual = max(files.values(), key=list(files.values()).count, default=())
    for run, names in files.items():
        kinds = Counter(file.partition("_")[0] for file in names)
        row = sorted(f"{kind}_{number}.txt" for kind in ("node", "sw") for number in range(kinds[kind]))
        if not names or names != row or names != usual:
            found = f"{run}: {', '.join(names[:5]) or 'no file'}"
            yield _finding("power-files", found, "node_<k>.txt and sw_<k>.txt, k from 0, as many in each run")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _finding(rule: str, found: str, expected: str, severity: Severity = "error") -> Finding:
    return Finding(rule, severity, found, expected, _MEND)
