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
from bertbench.runs.groups import Group
from bertbench.runs.json_files import Points, thinned
from bertbench.runs.judged_runs import breach_text, no_log_text, question_text
from bertbench.runs.run_settings import group_title
from bertbench.runs.run_summary import RunSummary
from bertbench.runs.tables import Table, detail_tables, remarks, run_table, verdict_line
from compliance.read import description
from compliance.read.record import shown
from compliance.read.source import LARGEST_LOG, CannotJudge, read_plain

_MOST_PUBLISHED = 15
_MOST_PIPELINES = 3  # that are drawn, because the runs of a group have the same settings
_MOST_FINDINGS = 100  # and as many questions on the page; `bertbench judge` lists all
_LONGEST_LINE = 1 << 12  # bytes of a line in a log
_MACHINE = ("number_of_nodes", "accelerators_per_node", "accelerator_model_name", "framework", "hw_notes")
_BALANCED = 0.99  # load efficiency; curves above it coincide and show nothing


def report_page(groups: Sequence[Group], folder: Path) -> str:
    """Return the page for these groups as HTML; links to logs are relative to `folder`."""
    return page.page("BERT results", *(_section(group, folder) for group in groups))


def _section(group: Group, folder: Path) -> str:
    name = group_title(group.system, group.settings)
    runs = [judged.run for judged in group.runs]
    readable = next((run for run in runs if run.facts.division), runs[0])
    fields = description.fields_of_log(readable.log)
    all_pass = all(judged.verdict == "pass" for judged in group.runs)
    links = [_link(run.log, folder) for run in runs]
    return page.section(
        name,
        *map(page.paragraph, remarks(group)),
        page.paragraph(verdict_line(group), "good" if all_pass else "bad"),
        page.paragraph(_machine(fields, readable), tone="soft"),
        page.paragraph(_dates(runs), tone="soft"),
        page.legend([(run.log.stem, look(index)) for index, run in enumerate(runs)]),
        page.panels(*_curves(runs, readable.target)),
        *(_pipeline(run) for run in runs[:_MOST_PIPELINES]),
        page.heading("Every run"),
        _html_table(run_table(group), links),
        *map(_html_table, detail_tables(group)),
        page.heading("Findings"),
        *_findings(group),
        *_questions(group),
        *_published(name, description.count_in_all_nodes(fields), group),
    )


def _html_table(table: Table, links: Sequence[str] = ()) -> str:
    return page.html_table(table.header, table.rows, table.caption, links)


def _curves(runs: Sequence[RunSummary], target: float | None) -> Iterator[str]:
    """Yield figures of accuracy, loss, learning rate, step time and, if ranks wait for each other, load balance."""
    level = None if target is None else (f"target {target:g}", target)
    by_samples: list[Points] = []
    by_time: list[Points] = []
    for run in runs:
        evaluations = run.evaluations
        by_samples.append([(each.samples, each.accuracy) for each in evaluations if each.samples is not None])
        by_time.append([(each.seconds, each.accuracy) for each in evaluations if each.seconds is not None])
    efficiency = _metric(runs, "load_efficiency")
    yield _figure("Accuracy against samples", by_samples, "training samples", "masked-LM accuracy", level)
    yield _figure("Accuracy against time", by_time, "seconds from run_start", "masked-LM accuracy", level)
    yield _figure("Loss", _metric(runs, "loss"), "step", "training loss")
    yield _figure("Learning rate", _metric(runs, "lr"), "step", "learning rate")
    yield _figure("Time of a step", _metric(runs, "step_ms"), "step", "ms")
    if any(value < _BALANCED for points in efficiency for _, value in points):
        yield _figure("Load balance", efficiency, "step", "mean load / largest load")


def _metric(runs: Sequence[RunSummary], field: str) -> list[Points]:
    """Return a field of metrics.jsonl by step for each run, with few enough points to draw."""
    return [thinned(run.curve(field)) for run in runs]


def _figure(title: str, series: list[Points], x: str, y: str, level: tuple[str, float] | None = None) -> str:
    """Return a figure with its title; nothing if no run has a point to draw."""
    if not drawable_points(series):
        return ""
    return page.figure(title, curves(series, x, y, level, from_zero=level is not None))


def _pipeline(run: RunSummary) -> str:
    """Return a figure of a pipeline's first recorded step; nothing if the run has none."""
    bars = run.trace.first_step()
    if not bars:
        return ""
    length_ms = max(bar.ended_ms for bar in bars) - min(bar.began_ms for bar in bars)
    title = f"A step of the pipeline, {length_ms:.1f} ms; gaps are its bubble ({run.log.stem})"
    return page.figure(title, pipeline_step(bars), wide=True)


def _findings(group: Group) -> Iterator[str]:
    """Yield the judge's findings in each log, with their remedies and the lines that they name."""
    findings = []
    for judged in group.runs:
        if not judged.is_log:
            yield page.paragraph(no_log_text(judged), "bad")
            continue
        for breach in judged.breaches:
            quoted = _line(judged.run.log, breach.line)
            findings.append(f"{breach_text(judged.run.log.name, breach)}; remedy: {breach.rule.remedy}{quoted}")
    if not any(judged.breaches for judged in group.runs):
        yield page.paragraph("none")
    yield from _first_paragraphs(findings, "bad")


def _questions(group: Group) -> Iterator[str]:
    """Yield the judge's questions, under a heading of their own, if there are any."""
    questions = []
    for judged in group.runs:
        for question in judged.questions:
            quoted = _line(judged.run.log, question.line)
            questions.append(f"{question_text(judged.run.log.name, question)}{quoted}")
    if questions:
        yield page.heading("Questions for the submitter")
        yield from _first_paragraphs(questions, "soft")


def _first_paragraphs(texts: Sequence[str], tone: str) -> Iterator[str]:
    for text in texts[:_MOST_FINDINGS]:
        yield page.paragraph(text, tone)
    if len(texts) > _MOST_FINDINGS:
        yield page.paragraph(f"and {len(texts) - _MOST_FINDINGS:,} more", "soft")


def _line(log: Path, number: int | None) -> str:
    r"""Return the beginning of a line, after a semicolon; lines are counted from 1 and end at \n, as in editors.

    Return nothing if no line is named, or if the log can't be read a second time, like standard input.
    """
    if number is None:
        return ""
    try:
        line = read_plain(log, LARGEST_LOG).split(b"\n")[number - 1]
    except (CannotJudge, IndexError):
        return ""
    return f"; line {number}: {line[:_LONGEST_LINE].decode(errors='replace').strip()}"


def _link(log: Path, folder: Path) -> str:
    """Return a log's address, relative to a page in `folder`, so that both can be moved together."""
    return quote(os.fsencode(f"./{os.path.relpath(log, folder)}"))


def _machine(fields: dict[str, str], run: RunSummary) -> str:
    """Return a line that describes the machine, from the log and the system description."""
    division = run.facts.division or "unknown"
    parts = [f"{division} division", f"global batch size {shown(run.facts.global_batch_size)}"]
    parts += [f"{name.replace('_', ' ')} {fields[name]}" for name in _MACHINE if fields.get(name)]
    processor = run.origin.get("processor")
    if isinstance(processor, str):
        parts.append(f"processor {processor}")
    return "; ".join(parts)


def _dates(runs: Sequence[RunSummary]) -> str:
    """Return when the first and the last run started; the date of the last one is shortened if it is the same."""
    starts = sorted(run.started for run in runs if run.started)
    if not starts:
        return ""
    first = starts[0]
    last = starts[-1]
    if first == last:
        return f"started {first} UTC"
    day, _, last_time = last.partition(" ")
    same_day = first.startswith(day)
    return f"started {first} to {last_time if same_day else last} UTC"


def _published(name: str, accelerators: int | None, group: Group) -> Iterator[str]:
    """Yield published results with the same number of accelerators, if the runs' time can be compared with theirs."""
    seconds = group.score_s or group.mean_time_to_train_s
    accuracies = [judged.run.best_accuracy or 0.0 for judged in group.reaching]
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
