"""Draw runs as a page: accuracy curves, which runs count, where time went, findings, and published results.

Made from the logs. Files that bertbench writes beside them, or a package's systems/, add target, loss, load balance and
the number of accelerators.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertbench.common.log_spans import TIMED, UNTIMED
from bertbench.report import curves, page, spent
from bertbench.report.beside import line_of
from bertbench.report.charts import Axis, Bar, Series, bars, lines
from bertbench.report.published import MLPERF_TARGET, beside
from bertbench.report.runs import conclusion, startup_conclusion, startup_rows, summarized, text_rows
from bertbench.report.settings import Group
from compliance import description
from compliance.judge import Finding, Judgement, judge
from compliance.record import shown
from compliance.run import number
from compliance.source import CannotJudge, read_plain

_LARGEST_CONFIG = 1 << 20  # bytes
_MOST_FINDINGS = 100
_MOST_PARTS = 30
_RUN_KINDS = ("counts", "dropped", "did not reach the target")


def html(found: Sequence[Group], ruleset: str) -> str:
    """Return the page of these runs."""
    groups = [_System(group, ruleset, number) for number, group in enumerate(found)]
    overview = [page.section("Systems", _overview(groups))] if len(groups) > 1 else []
    sections = [_section(group) for group in groups]  # quotes the log lines that findings name
    quoted = "".join(line for group in groups for _, line in group.quoted.values())
    cited = [page.section("Log lines", quoted)] if quoted else []
    names = ", ".join(group.name for group in groups[:3]) + (" and others" if len(groups) > 3 else "")
    return page.page(f"BERT results: {names}", *overview, *sections, *cited)


class _System:
    """One system's runs with the same settings, and values derived from them."""

    def __init__(self, group: Group, ruleset: str, number: int) -> None:
        self.name, self.runs = group.title, group.runs
        runs = group.runs
        self.summary: dict[str, Any] = summarized(group)
        self.judgements = [replace(judge(log, ruleset), facts=None) for log, _ in runs]
        self.ruleset = ruleset
        self.first = next((run for run in runs if run[1].division), runs[0])  # the first readable one
        self.fields = description.of_log(self.first[0])
        self.quoted: dict[tuple[Path, int], tuple[str, str]] = {}  # log lines that findings name: anchor, HTML
        self._number = number

    @property
    def accelerators(self) -> int | None:
        return description.accelerators(self.fields)

    @property
    def unit(self) -> tuple[str, float]:
        """Return the unit of displayed times, and its seconds."""
        longest = max((row["time_to_train_s"] or 0.0 for row in self.summary["runs"]), default=0.0)
        return ("minutes", 60.0) if longest > 600 else ("seconds", 1.0)

    def quote(self, log: Path, line: int) -> str:
        """Put a line of a log on the page; return its anchor."""
        if (log, line) not in self.quoted:
            anchor = f"line-{self._number}-{len(self.quoted)}"
            self.quoted[log, line] = anchor, page.quoted(f"{log.name}:{line}: {_line(log, line)}", anchor)
        return self.quoted[log, line][0]


def _section(group: _System) -> str:
    unit, seconds = group.unit
    target = _target(group)
    levels = [] if target is None else [(f"target {target:g}", target)]
    accuracy = Axis("masked-LM accuracy", low=0.0)
    return page.section(
        group.name,
        page.paragraph(conclusion(group.summary)),
        page.paragraph(_machine(group), tone="soft"),
        page.panels(
            lines("Accuracy against samples", _by_samples(group), Axis("training samples", low=0.0), accuracy, levels),
            lines("Accuracy against time", _by_time(group), Axis(f"{unit} from run_start", low=0.0), accuracy, levels),
            bars("Time to train: which runs count", _counted(group), Axis(unit)),
            bars("Where the time went", _where(group, seconds), Axis(unit)),
            *_training(group),
            *(drawn for log, _ in group.runs if (drawn := _profile_chart(log))),
        ),
        page.heading("Every run"),
        page.table(*text_rows(group.summary)),
        *_startup(group),
        *spent.wall_clock(group.summary),
        *spent.energy(group.summary),
        page.heading("Findings"),
        _findings(group),
        page.heading("Published results"),
        beside(group.name, group.accelerators, _comparable_minutes(group)),
    )


def _by_samples(group: _System) -> list[Series]:
    return [
        Series(log.stem, [(e.samples, e.accuracy) for e in facts.evaluations if e.samples is not None])
        for log, facts in group.runs
    ]


def _by_time(group: _System) -> list[Series]:
    _, seconds = group.unit
    return [
        Series(log.stem, [(since / seconds, accuracy) for since, accuracy in facts.course])
        for log, facts in group.runs
        if facts.started_ms is not None
    ]


def _counted(group: _System) -> list[Bar]:
    _, seconds = group.unit
    rows = []
    for row in group.summary["runs"]:
        if row["not_a_result"]:
            continue
        time = (row["time_to_train_s"] or 0.0) / seconds
        what = _RUN_KINDS[0 if row["counted"] else 1 if row["status"] == "success" else 2]
        parts = dict.fromkeys(_RUN_KINDS, 0.0) | {what: time}
        rows.append(Bar(Path(row["log"]).stem, parts, f"{time:,.1f}"))
    mean = group.summary["mean_time_to_train_s"]
    if mean is not None:
        rows.append(Bar("mean of those that count", {"mean": mean / seconds}, f"{mean / seconds:,.2f}", strong=True))
    return rows


def _where(group: _System, seconds: float) -> list[Bar]:
    parts = (("start-up", "startup_s"), ("training", "steps_s"), ("evaluation", "evaluation_s"))
    return [
        Bar(
            Path(row["log"]).stem,
            {name: (row[key] or 0.0) / seconds for name, key in parts},
            f"evaluation {row['evaluation_s'] / row['time_to_train_s']:.1%}" if row["time_to_train_s"] else "",
        )
        for row in group.summary["runs"]
    ]


def _training(group: _System) -> list[str]:
    """Return charts of metrics.jsonl, for runs that have it."""
    drawn = {log.stem: curves.curves(log, ("loss", "load_efficiency")) for log, _ in group.runs}
    charts = []
    for field, title, axis in (
        ("loss", "Loss", Axis("training loss")),
        ("load_efficiency", "Load balance", Axis("load efficiency: mean / slowest rank", high=1.0)),
    ):
        series = [Series(name, found[field]) for name, found in drawn.items() if found[field]]
        if series:
            charts.append(lines(title, series, Axis("step"), axis))
    return charts


def _startup(group: _System) -> list[str]:
    """Return where the time went before the first step, for runs that log it."""
    shown_here = [(Path(row["log"]).stem, row["startup"]) for row in group.summary["runs"] if row["startup"]]
    if not shown_here:
        return []
    charts = []
    for title, part, pieces in (
        ("Off the clock: launch to run_start", "untimed_s", UNTIMED),
        ("On the clock: run_start to the end of the first step", "timed_s", TIMED),
    ):
        drawn = [
            Bar(name, {piece: startup[part].get(piece, 0.0) for piece in pieces}, f"{sum(startup[part].values()):.2f}")
            for name, startup in shown_here
        ]
        charts.append(bars(title, drawn, Axis("seconds, rank 0")))
    header, rows = startup_rows(group.summary)
    return [
        page.heading("Start-up"),
        page.paragraph(startup_conclusion(group.summary)),
        page.panels(*charts),
        page.table(header, rows, "seconds: rank 0 of each run, and the slowest rank of each piece"),
    ]


def _findings(group: _System) -> str:
    shown_here = [(judgement, finding) for judgement in group.judgements for finding in judgement.findings]
    passed = sum(judgement.verdict == "pass" for judgement in group.judgements)
    verdict = f"{passed} of {len(group.judgements)} logs pass by ruleset {group.ruleset}; {len(shown_here)} findings"
    shown = [_finding(group, judgement, finding) for judgement, finding in shown_here[:_MOST_FINDINGS]]
    if len(shown_here) > len(shown):
        shown.append(page.toned(f"and {len(shown_here) - len(shown)} more: python -m compliance lists them", "soft"))
    tone = "good" if passed == len(group.judgements) else "bad"
    return page.paragraph(verdict, tone) + (page.listing(shown) if shown else "")


def _finding(group: _System, judgement: Judgement, finding: Finding) -> str:
    name = judgement.path.name
    if finding.line is None:
        where = page.toned(name, "soft")
    else:
        where = page.link(f"{name}:{finding.line}", group.quote(judgement.path, finding.line))
    head = page.toned(f"{finding.severity} {finding.rule}", "bad" if finding.severity == "error" else "soft")
    text = f"found {finding.found}; expected {finding.expected}; {finding.remedy}"
    return f"{head} {where}: {page.toned(text)}"


def _comparable_minutes(group: _System) -> float | None:
    """Return the time to train, if its runs reached MLPerf's target."""
    mean: float | None = group.summary["mean_time_to_train_s"]
    reached = [row for row in group.summary["runs"] if row["status"] == "success"]
    if mean is None or any((row["best_accuracy"] or 0.0) < MLPERF_TARGET for row in reached):
        return None
    return mean / 60


def _overview(groups: Sequence[_System]) -> str:
    rows = []
    for group in groups:
        mean = group.summary["mean_time_to_train_s"]
        rows.append(Bar(group.name, {"time to train": (mean or 0.0) / 60}, f"{mean / 60:.2f}" if mean else "no result"))
    return page.panels(bars("Time to train by system", rows, Axis("minutes, mean of the runs that count")))


def _machine(group: _System) -> str:
    """Return the machine in a line, from log and description."""
    fields, facts = group.fields, group.first[1]
    shown_here = [f"{facts.division} division", f"global batch size {shown(facts.global_batch_size)}"]
    if group.accelerators is not None:
        model = fields.get("accelerator_model_name") or "accelerator"
        each = f"in each {fields['accelerators_per_node']} x {model}" if group.accelerators else "CPUs only"
        shown_here.append(f"nodes: {fields['number_of_nodes']}, {each}")
    return "; ".join([*shown_here, *(fields[name] for name in ("framework", "hw_notes") if fields.get(name))])


def _target(group: _System) -> float | None:
    """Return the target accuracy: MLPerf's in the closed division, else from bertbench's configuration."""
    log, facts = group.first
    if facts.division == "closed":
        return MLPERF_TARGET
    try:
        target = json.loads(read_plain(log.with_suffix("") / "config.json", _LARGEST_CONFIG))["evaluation"]["target"]
    except (CannotJudge, ValueError, KeyError, TypeError, RecursionError):
        return None
    return number(target)


def _line(log: Path, line: int) -> str:
    """Return a line of a log, counted as in text editors; nothing if the log is gone."""
    try:
        return line_of(log, line)
    except CannotJudge:
        return ""


def _profile_chart(log: Path) -> str:
    """Draw where a step's time went, from profile.json; nothing if the run wasn't profiled or the file is invalid."""
    try:
        parts = json.loads(read_plain(log.with_suffix("") / "profile.json", _LARGEST_CONFIG))["parts_ms"]
        found = {str(name): ms for name, value in parts.items() if (ms := number(value)) is not None}
    except (CannotJudge, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    step = sum(found.values()) or 1.0
    rows = [Bar(name, {"time": ms}, f"{ms / step:.1%}") for name, ms in list(found.items())[:_MOST_PARTS]]
    return bars(f"Where a step's time goes: {log.stem}", rows, Axis("ms, rank 0"))
