"""Show groups of runs in a terminal: a table for each group, the judge's findings, and where time went."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.common.evaluation import accuracy_text
from bertbench.common.markup import cell
from bertbench.common.tables import aligned
from bertbench.runs.flop_rates import mean_flop_rates
from bertbench.runs.groups import Group
from bertbench.runs.judged_runs import JudgedRun, breach_text, no_log_text, question_text, reached_text
from bertbench.runs.run_settings import group_title
from bertbench.runs.run_summary import RunSummary
from bertbench.runs.sample_counts import EPOCH_NUM

_MOST_LINES = 20  # of findings, or of questions, in a terminal; `bertbench judge` lists all


@dataclass(frozen=True)
class Column:
    """A value of a run in a table: its heading, and its format for `str.format`."""

    heading: str
    form: str


COLUMNS = {
    "log": Column("log", "{}"),
    "system": Column("system", "{}"),
    "seed": Column("seed", "{}"),
    "status": Column("status", "{}"),
    "time_to_train_s": Column("time s", "{:.1f}"),
    "samples": Column("samples", "{:,.0f}"),
    "best_accuracy": Column("accuracy", "{}"),
    "samples_per_s": Column("samples/s", "{:,.1f}"),
    "evaluations": Column("evals", "{}"),
    "startup_s": Column("start-up s", "{:.2f}"),
    "steps_s": Column("steps s", "{:.1f}"),
    "evaluation_s": Column("eval s", "{:.1f}"),
    "commit": Column("commit", "{:.7}"),
    "verdict": Column("verdict", "{}"),
}
_REPORTED = (
    "time_to_train_s", "samples", "samples_per_s", "best_accuracy", "evaluations", "startup_s", "steps_s",
    "evaluation_s",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Cells as text, with a header."""

    header: list[str]
    rows: list[list[str]]
    caption: str = ""


def cells(values: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Return values of a run as text; `best_accuracy` also needs the run's `target`."""
    texts = []
    for column in columns:
        value = values[column]
        if value is None:
            texts.append("-")
        elif column == "best_accuracy":
            texts.append(accuracy_text(value, values["target"]))
        else:
            texts.append(cell(COLUMNS[column].form.format(value)))
    return texts


def run_table(group: Group) -> Table:
    """Return a table with a row for each run."""
    header = ["run", "verdict", *(COLUMNS[key].heading for key in _REPORTED)]
    left_out = _left_out(group)
    rows = []
    for judged in group.runs:
        verdict = outcome_text(judged) + left_out.get(judged.run.log, "")
        rows.append([cell(judged.run.log.stem), verdict, *cells(judged.fields(), _REPORTED)])
    return Table(header, rows)


def outcome_text(judged: JudgedRun) -> str:
    """Return the judge's verdict on a run that ended with success, or else how the run ended."""
    if judged.run.not_a_result:
        return "no result"
    if judged.is_log and (judged.reached or judged.verdict == "cannot-judge"):
        return str(judged.verdict).replace("-", " ")
    return "fail" if judged.run.status == "success" else cell(judged.run.status)


def _left_out(group: Group) -> dict[Path, str]:
    """Return remarks, by log, for runs that the score leaves out although they reached the target."""
    if group.score_s is None:
        return {}
    left_out = [judged.run for judged in group.reaching if judged.run.log not in group.counted]
    fastest, *slowest = sorted(left_out, key=lambda run: run.time_to_train_s or math.inf)
    return {fastest.log: " (fastest)"} | {run.log: " (slowest)" for run in slowest}


def _conclusion(group: Group) -> str:
    """Return a sentence that says how many runs reached the target, whether they count, and how fast they are."""
    parts = [reached_text(len(group.reaching), group.reached_not_passed, len(group.results))]
    if group.reaching:
        parts.append(_mean_text(group))
    if group.score_s is not None:
        parts.append(f"MLPerf's score: {group.score_s:.1f} s, the mean without the fastest and the slowest run")
    return "; ".join(parts)


def _mean_text(group: Group) -> str:
    time_s = group.mean_time_to_train_s
    samples = group.mean_samples_to_converge
    values = "an unknown time" if time_s is None else f"{time_s:.1f} s"
    if samples is not None:
        values += f", {samples:,.0f} samples"
    reached = len(group.reaching)
    if reached == 1:
        return f"time to train {values}"
    everyone = "all " if reached == len(group.results) else ""
    return f"mean of {everyone}{reached}: {values}"


def remarks(group: Group) -> Iterator[str]:
    """Yield sentences about the convergence, speed and load balance of a group, if they are known."""
    yield _conclusion(group)
    yield from _sample_sources(group)
    results = [judged.run for judged in group.results]
    timed = [run for run in results if run.time_to_train_s and run.samples_per_s and run.steps_s is not None]
    if timed:
        yield _speed(timed)
    yield from _flop_rates(results)
    yield from _use(results)
    for run in results:
        if run.bubble is not None and run.bubble_of_equal_stages is not None:
            yield (
                f"pipeline: {cell(run.log.stem)}: bubble {run.bubble:.1%} of its time; it would be "
                f"{run.bubble_of_equal_stages:.1%} if stages were equal and messages took no time"
            )
    efficiencies = [run.load_efficiency for run in results if run.load_efficiency is not None]
    if efficiencies:
        yield f"balance: load efficiency {mean(efficiencies):.1%} (mean load / largest load)"
    for run in results:
        if run.straggler:
            yield f"straggler: {cell(run.log.stem)}: {run.straggler.text()}"


def _speed(runs: Sequence[RunSummary]) -> str:
    total_s = sum(run.time_to_train_s or 0.0 for run in runs)
    spent_s = {
        "training": sum(run.steps_s or 0.0 for run in runs),
        "evaluation": sum(run.evaluation_s for run in runs),
        "start-up": sum(run.startup_s or 0.0 for run in runs),
    }
    shares = ", ".join(f"{seconds / total_s:.1%} {name}" for name, seconds in spent_s.items())
    samples_per_s = mean(run.samples_per_s or 0.0 for run in runs)
    return f"speed: {samples_per_s:,.0f} samples/s; time on the clock: {shares}"


def _flop_rates(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Yield the FLOP/s of the runs: one line for all if they have the same peak, otherwise one line for each."""
    rated = [run for run in runs if run.flops.tflops_per_device is not None]
    peaks = {(run.flops.peak_tflops, run.flops.peak_source, run.flops.number_format) for run in rated}
    if len(rated) > 1 and len(peaks) == 1:
        yield mean_flop_rates([run.flops for run in rated]).text()
        return
    for run in rated:
        text = run.flops.text()
        yield text if len(rated) == 1 else f"{cell(run.log.stem)}: {text}"


def _use(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Yield what the runs' rank 0 used, as the mean of the runs, and their largest memory, if they recorded it."""
    uses = [run.use for run in runs if {"cores_busy", "peak_memory_gb"} <= set(run.use)]
    if not uses:
        return
    parts = [f"{mean(use['cores_busy'] for use in uses):.2f} cores busy"]
    if all("device_busy" in use for use in uses):
        parts.append(f"device {mean(use['device_busy'] for use in uses):.0%} busy")
    if all("memory_gb" in use for use in uses):
        parts.append(f"{mean(use['memory_gb'] for use in uses):.2f} GB of memory")
    parts.append(f"at most {max(use['peak_memory_gb'] for use in uses):.2f} GB")
    yield f"use of rank 0: {', '.join(parts)}"


def _sample_sources(group: Group) -> Iterator[str]:
    """Yield how samples were counted in logs whose epoch_num, which MLPerf's rules require, doesn't count them."""
    names = defaultdict[str | None, list[str]](list)
    for run in (judged.run for judged in group.runs):
        if run.evaluations and run.samples_from != EPOCH_NUM:
            names[run.samples_from].append(cell(run.log.stem))
    for source, runs in names.items():
        taken = "nothing else in the log states them" if source is None else f"they are taken from {source}"
        yield f"samples: epoch_num doesn't count samples in {', '.join(runs)}; {taken}"


def _judged_lines(group: Group) -> list[str]:
    """Return the judge's findings, then the questions for the submitter, and a last line that counts both."""
    findings = []
    questions = []
    for judged in group.runs:
        if judged.is_log:
            findings += [breach_text(judged.run.log.name, breach) for breach in judged.breaches]
        else:
            findings.append(no_log_text(judged))
        questions += [question_text(judged.run.log.name, question) for question in judged.questions]
    return [*_first_lines(findings), *_first_lines(questions), verdict_line(group)]


def _first_lines(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"and {more:,} more"] if more > 0 else lines


def verdict_line(group: Group) -> str:
    """Return how many logs pass, and the numbers of findings and of questions."""
    runs = len(group.runs)
    with_verdict = sum(judged.verdict is not None for judged in group.runs)
    line = f"{group.passed} of {with_verdict} logs pass under ruleset {' or '.join(group.rulesets)}"
    if with_verdict < runs:
        line += f", {runs - with_verdict} not judged (unfinished, or not a result)"
    findings = sum(len(judged.breaches) for judged in group.runs)
    questions = sum(len(judged.questions) for judged in group.runs)
    line += f"; {_counted(findings, 'finding')}"
    if questions:
        line += f", {_counted(questions, 'question')}"
    return f"{line}: `bertbench judge` lists them" if findings or questions else line


def _counted(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s" if number else f"no {noun}s"


def report_text(group: Group, detailed: bool) -> str:
    """Return the output of `report` for a group; `detailed` adds a table for each detail."""
    table = run_table(group)
    lines = [group_title(group.system, group.settings), *aligned(table.header, table.rows), *remarks(group)]
    if detailed:
        for detail in detail_tables(group):
            lines += [detail.caption, *aligned(detail.header, detail.rows)]
    return "\n".join([*lines, *_judged_lines(group)])


Amounts = dict[str, float]
"""Amounts, by what they were spent on."""


def detail_tables(group: Group) -> list[Table]:
    """Return tables of what a group's runs spent, if any run recorded it: start-up, wall-clock time, energy."""
    runs = [judged.run for judged in group.runs]
    startups = [run.startup for run in runs if run.startup]
    wall_clock = {cell(run.log.stem): run.ledger for run in runs if run.ledger}
    energy = {}
    for run in runs:
        if run.energy:
            energy[cell(run.log.stem)] = {"joules": run.energy["joules"], **run.energy["counters"]}
    tables = [
        _startup_table(startups),
        _table_by_run("wall clock: seconds from submission to the end, including restarts and requeues", wall_clock),
        _table_by_run("energy: joules from run_start to run_stop, in all and by kind of counter", energy),
    ]
    return [table for table in tables if table.rows]


def _startup_table(startups: Sequence[dict[str, Amounts]]) -> Table:
    """Return a row for each part, with mean and maximum: the runs of a group are nearly equal."""
    rank_0 = [seconds["untimed_s"] | seconds["timed_s"] for seconds in startups]
    slowest = [seconds["slowest_s"] for seconds in startups]
    pieces = dict.fromkeys(piece for amounts in (*rank_0, *slowest) for piece in amounts)
    rows = [[cell(piece), *_mean_and_most(rank_0, piece), *_mean_and_most(slowest, piece)] for piece in pieces]
    caption = "start-up: seconds of each part, from launch to the end of the first step"
    if len(startups) < 2:
        return Table(["part", "rank 0", "slowest rank"], rows, caption)
    header = ["part", "rank 0: mean", "rank 0: max", "slowest rank: mean", "slowest rank: max"]
    return Table(header, rows, f"{caption}, in {len(startups)} runs")


def _mean_and_most(runs: Sequence[Amounts], piece: str) -> list[str]:
    """Return the mean and the maximum of several runs' amounts; for a single run, its amount."""
    known = [amounts[piece] for amounts in runs if piece in amounts]
    if len(runs) == 1:
        return [_amount(known[0]) if known else "-"]
    return [_amount(mean(known)), _amount(max(known))] if known else ["-", "-"]


def _table_by_run(caption: str, runs: Mapping[str, Amounts]) -> Table:
    columns = list(dict.fromkeys(column for amounts in runs.values() for column in amounts))
    rows = []
    for name, amounts in runs.items():
        cells = [_amount(amounts[column]) if column in amounts else "-" for column in columns]
        rows.append([name, *cells])
    return Table(["run", *map(cell, columns)], rows, caption)


def _amount(amount: float) -> str:
    return f"{amount:z,.2f}"
