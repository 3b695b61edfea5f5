"""Draw a page of runs: curves, a table of times to train and where time went, findings, and published results.

The page is made from the logs. Files that bertbench writes next to them, or the folder systems/ of a package, add
target, loss, load balance and the number of accelerators.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from bertbench.common.published_results import MLPERF_TARGET, PublishedResult, published_results
from bertbench.runs import page
from bertbench.runs.figures import curves, drawable_points, look, pipeline_step
from bertbench.runs.json_files import Points, metric_curve, read_json, thinned
from bertbench.runs.pipeline_step import first_step
from bertbench.runs.run_groups import GroupSummary
from bertbench.runs.run_settings import RunGroup, Runs, group_title, target_of
from bertbench.runs.run_tables import Table, detail_tables, remarks, run_table, verdict_line
from bertbench.runs.sample_counts import accuracy_curve
from bertbench.runs.verdicts import JudgeFinding, no_log_text
from compliance.read import description
from compliance.read.record import shown
from compliance.read.run import RunFacts
from compliance.read.source import LARGEST_LOG, CannotJudge, read_plain

_MOST_PUBLISHED = 15
_MOST_PIPELINES = 3  # that are drawn, because the runs of a group have the same settings
_MOST_FINDINGS = 100  # on the page; `bertbench judge` lists all
_LONGEST_LINE = 1 << 12  # bytes of a line in a log
_MACHINE = ("number_of_nodes", "accelerators_per_node", "accelerator_model_name", "framework", "hw_notes")
_BALANCED = 0.99  # load efficiency; curves above it coincide and show nothing


def report_page(groups: Sequence[RunGroup], summaries: Sequence[GroupSummary], folder: Path) -> str:
    """Return the page for these groups and their summaries as HTML; links to logs are relative to `folder`."""
    sections = [_section(group, summary, folder) for group, summary in zip(groups, summaries, strict=True)]
    return page.page("BERT results", *sections)


def _section(group: RunGroup, summary: GroupSummary, folder: Path) -> str:
    name = group_title(group.name, group.settings)
    log, facts = _first_readable(group.runs)
    fields = description.fields_of_log(log)
    all_pass = all(run.verdict == "pass" for run in summary.runs) and not summary.findings
    links = [_link(log, folder) for log, _ in group.runs]
    return page.section(
        name,
        *map(page.paragraph, remarks(summary)),
        page.paragraph(verdict_line(summary), "good" if all_pass else "bad"),
        page.paragraph(_machine(fields, log, facts), tone="soft"),
        page.paragraph(_dates(summary), tone="soft"),
        page.legend([(log.stem, look(index)) for index, (log, _) in enumerate(group.runs)]),
        page.panels(*_curves(group.runs, target_of(log, facts))),
        *(_pipeline(log) for log, _ in group.runs[:_MOST_PIPELINES]),
        page.heading("Every run"),
        _html_table(run_table(summary), links),
        *map(_html_table, detail_tables(summary)),
        page.heading("Findings"),
        *_findings(summary),
        *_published(name, description.count_in_all_nodes(fields), summary),
    )


def _first_readable(runs: Runs) -> tuple[Path, RunFacts]:
    return next(((log, facts) for log, facts in runs if facts.division), runs[0])


def _html_table(table: Table, links: Sequence[str] = ()) -> str:
    return page.html_table(table.header, table.rows, table.caption, links)


def _curves(runs: Runs, target: float | None) -> Iterator[str]:
    """Yield figures of accuracy, loss, learning rate, step time and, if ranks wait for each other, load balance."""
    level = None if target is None else (f"target {target:g}", target)
    by_samples = [accuracy_curve(facts) for _, facts in runs]
    by_time = [facts.course for _, facts in runs]
    efficiency = _metric(runs, "load_efficiency")
    yield _figure("Accuracy against samples", by_samples, "training samples", "masked-LM accuracy", level)
    yield _figure("Accuracy against time", by_time, "seconds from run_start", "masked-LM accuracy", level)
    yield _figure("Loss", _metric(runs, "loss"), "step", "training loss")
    yield _figure("Learning rate", _metric(runs, "lr"), "step", "learning rate")
    yield _figure("Time of a step", _metric(runs, "step_ms"), "step", "ms")
    if any(value < _BALANCED for points in efficiency for _, value in points):
        yield _figure("Load balance", efficiency, "step", "mean load / largest load")


def _metric(runs: Runs, field: str) -> list[Points]:
    """Return a field of metrics.jsonl by step for each run, with few enough points to draw."""
    return [thinned(metric_curve(log, field)) for log, _ in runs]


def _figure(title: str, series: list[Points], x: str, y: str, level: tuple[str, float] | None = None) -> str:
    """Return a figure with its title; nothing if no run has a point to draw."""
    if not drawable_points(series):
        return ""
    return page.figure(title, curves(series, x, y, level, from_zero=level is not None))


def _pipeline(log: Path) -> str:
    """Return a figure of a pipeline's first recorded step; nothing if the run has none."""
    bars = first_step(read_json(log, "pipeline.json"))
    if not bars:
        return ""
    length_ms = max(bar.ended_ms for bar in bars) - min(bar.began_ms for bar in bars)
    title = f"A step of the pipeline, {length_ms:.1f} ms; gaps are its bubble ({log.stem})"
    return page.figure(title, pipeline_step(bars), wide=True)


def _findings(summary: GroupSummary) -> Iterator[str]:
    """Yield the judge's findings across the runs and in each log, with the lines that they name."""
    in_logs = []
    for run in summary.runs:
        if run.is_log:
            in_logs += [(Path(run.log), finding) for finding in run.findings]
        else:
            yield page.paragraph(no_log_text(run.log, run.findings[0]), "bad")
    if not summary.findings and not any(run.findings for run in summary.runs):
        yield page.paragraph("none")
    for finding in summary.findings:
        yield _finding(finding, "across runs")
    for log, finding in in_logs[:_MOST_FINDINGS]:
        yield _finding(finding, _place(log, finding))
    if len(in_logs) > _MOST_FINDINGS:
        yield page.paragraph(f"and {len(in_logs) - _MOST_FINDINGS:,} more in single logs", "soft")


def _finding(finding: JudgeFinding, where: str) -> str:
    text = (
        f"{finding.severity} {finding.rule}: found {finding.found}; expected: {finding.expected}; "
        f"{_what_to_do(finding)}; {where}"
    )
    return page.paragraph(text, "bad" if finding.severity == "error" else "soft")


def _what_to_do(finding: JudgeFinding) -> str:
    return f"remedy: {finding.remedy}" if finding.severity == "error" else finding.remedy


def _place(log: Path, finding: JudgeFinding) -> str:
    """Return the log of a finding, and the beginning of the line that the finding names."""
    if finding.line is None:
        return log.name
    return f"{log.name}:{finding.line}: {_line(log, finding.line)}"


def _line(log: Path, number: int) -> str:
    r"""Return the beginning of a line; lines are counted from 1 and end at \n, as in editors.

    Return nothing if the log can't be read a second time, like standard input.
    """
    try:
        line = read_plain(log, LARGEST_LOG).split(b"\n")[number - 1]
    except (CannotJudge, IndexError):
        return ""
    return line[:_LONGEST_LINE].decode(errors="replace").strip()


def _link(log: Path, folder: Path) -> str:
    """Return a log's address, relative to a page in `folder`, so that both can be moved together."""
    return quote(os.fsencode(f"./{os.path.relpath(log, folder)}"))


def _machine(fields: dict[str, str], log: Path, facts: RunFacts) -> str:
    """Return a line that describes the machine, from the log and the system description."""
    division = facts.division or "unknown"
    parts = [f"{division} division", f"global batch size {shown(facts.global_batch_size)}"]
    parts += [f"{name.replace('_', ' ')} {fields[name]}" for name in _MACHINE if fields.get(name)]
    processor = read_json(log, "run.json").get("processor")
    if isinstance(processor, str):
        parts.append(f"processor {processor}")
    return "; ".join(parts)


def _dates(summary: GroupSummary) -> str:
    """Return when the first and the last run started; the date of the last one is shortened if it is the same."""
    starts = sorted(run.started for run in summary.runs if run.started)
    if not starts:
        return ""
    first = starts[0]
    last = starts[-1]
    if first == last:
        return f"started {first} UTC"
    day, _, last_time = last.partition(" ")
    same_day = first.startswith(day)
    return f"started {first} to {last_time if same_day else last} UTC"


def _published(name: str, accelerators: int | None, summary: GroupSummary) -> Iterator[str]:
    """Yield published results with the same number of accelerators, if the runs' time can be compared with theirs."""
    seconds = summary.score_s or summary.mean_time_to_train_s
    accuracies = [run.best_accuracy or 0.0 for run in summary.runs if run.reached]
    if seconds is None or min(accuracies) < MLPERF_TARGET:
        return
    yield page.heading("Published results")
    yield published_table(name, accelerators, seconds / 60)


def published_table(name: str, accelerators: int | None, minutes: float) -> str:
    """Return, as HTML, published results with as many accelerators as a system has, and the system's own time."""
    if accelerators is None:
        return page.paragraph("No system description states the number of accelerators to compare with.", "soft")
    machines = f"{accelerators} accelerators" if accelerators else "CPUs only"
    fastest: dict[tuple[str, str], PublishedResult] = {}
    for result in sorted(published_results(), key=lambda result: result.minutes):
        if result.accelerators == accelerators:
            fastest.setdefault((result.accelerator, result.division), result)
    if not fastest:
        return page.paragraph(f"There are no published results with {machines}.", "soft")
    results = sorted((result.minutes, _label(result), result.division) for result in fastest.values())
    results = sorted([*results[:_MOST_PUBLISHED], (minutes, f"{name} (here)", "")])
    rows = [[label, division, f"{time:.2f}"] for time, label, division in results]
    caption = f"Published MLPerf results with {machines}: the fastest of each kind"
    note = page.paragraph("Times are comparable if model, data and target are those of MLPerf.", "soft")
    return page.html_table(["system", "division", "minutes to train"], rows, caption) + note


def _label(result: PublishedResult) -> str:
    machine = result.accelerator.removeprefix("NVIDIA ") if result.accelerators else f"{result.nodes} nodes"
    latest_round = result.rounds.split(";")[-1]
    return f"{machine}, {result.submitter} {latest_round}"
