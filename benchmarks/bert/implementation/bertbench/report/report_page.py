"""Draw runs as a page: curves, a table of time to train and where it went, findings, and published results.

Made from the logs. Files that bertbench writes beside them, or a package's systems/, add target, loss, load balance and
the number of accelerators.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bertbench.common.published_results import MLPERF_TARGET, PublishedResult, published_results
from bertbench.report import page
from bertbench.report.charts import Axis, lines
from bertbench.report.details import details
from bertbench.report.runs import remarks, text_rows, verdict_line
from bertbench.run_files.reading import Points, accuracies, curve, described, line_of, thinned
from bertbench.run_files.settings import Group, Runs, target_of, title
from bertbench.run_files.verdicts import Finding, no_log_text
from compliance.read import description
from compliance.read.record import shown
from compliance.read.run import RunFacts
from compliance.read.source import CannotJudge

_MOST_PUBLISHED = 15
_MOST_FINDINGS = 100  # on the page; `bertbench judge` lists all
_MACHINE = ("number_of_nodes", "accelerators_per_node", "accelerator_model_name", "framework", "hw_notes")
_BALANCED = 0.99  # load efficiency: curves above it lie on each other and say nothing


def html(found: Sequence[Group], contents: Sequence[dict[str, Any]], folder: Path) -> str:
    """Return the page of these runs and their objects of `summarized`; it will lie in `folder`, beside no script."""
    sections = (_section(group, content, folder) for group, content in zip(found, contents, strict=True))
    return page.page("BERT results", *sections)


def _section(group: Group, content: dict[str, Any], folder: Path) -> str:
    name, runs = title(group.name, group.settings), group.runs
    log, facts = next((run for run in runs if run[1].division), runs[0])  # the first readable one
    fields = description.of_log(log)
    good = all(row["verdict"] == "pass" for row in content["runs"]) and not content["findings"]
    return page.section(
        name,
        *map(page.paragraph, remarks(content)),
        page.paragraph(verdict_line(content), "good" if good else "bad"),
        page.paragraph(_machine(fields, log, facts), tone="soft"),
        page.paragraph(_dates(content), tone="soft"),
        page.panels(*_curves(runs, target_of(log, facts))),
        page.heading("Every run"),
        page.table(*text_rows(content), links=[_link(log, folder) for log, _ in runs]),
        *(page.table(one.header, one.rows, one.caption) for one in details(content)),
        page.heading("Findings"),
        *_findings(content),
        *_published(name, description.count_in_all_nodes(fields), content),
    )


def _curves(runs: Runs, target: float | None) -> Iterator[str]:
    """Yield the charts of accuracy, loss and, where ranks wait for each other, load balance."""
    level = None if target is None else (f"target {target:g}", target)
    accuracy = Axis("masked-LM accuracy", low=0.0)
    by_samples = {log.stem: accuracies(facts) for log, facts in runs}
    by_time = {log.stem: facts.course for log, facts in runs}
    yield lines("Accuracy against samples", by_samples, Axis("training samples", low=0.0), accuracy, level)
    yield lines("Accuracy against time", by_time, Axis("seconds from run_start", low=0.0), accuracy, level)
    loss, efficiency = ({log.stem: thinned(curve(log, of)) for log, _ in runs} for of in ("loss", "load_efficiency"))
    if any(loss.values()):
        yield lines("Loss", _known(loss), Axis("step"), Axis("training loss"))
    if any(value < _BALANCED for points in efficiency.values() for _, value in points):
        axis = Axis("mean rank's work / slowest rank's", low=0.9, high=1.0)
        yield lines("Load balance", _known(efficiency), Axis("step"), axis)


def _known(series: dict[str, Points]) -> dict[str, Points]:
    return {name: points for name, points in series.items() if points}


def _findings(content: dict[str, Any]) -> Iterator[str]:
    """Yield what the judge finds across the runs and in each log, with the lines that it names."""
    logs = [row for row in content["runs"] if row["is_log"]]
    single = [(Path(row["log"]), finding) for row in logs for finding in row["findings"]]
    for row in content["runs"]:
        if not row["is_log"]:
            yield page.paragraph(no_log_text(row["log"], row["findings"][0]), "bad")
    if not any(row["findings"] for row in content["runs"]) and not content["findings"]:
        yield page.paragraph("none")
    for finding in content["findings"]:
        yield _finding(finding, "across runs")
    for log, finding in single[:_MOST_FINDINGS]:
        yield _finding(
            finding, log.name if finding.line is None else f"{log.name}:{finding.line}: {_line(log, finding)}"
        )
    if len(single) > _MOST_FINDINGS:
        yield page.paragraph(f"and {len(single) - _MOST_FINDINGS:,} more in single logs", "soft")


def _finding(one: Finding, where: str) -> str:
    text = f"{one.severity} {one.rule}: found {one.found}; expected {one.expected}; {one.remedy}; {where}"
    return page.paragraph(text, "bad" if one.severity == "error" else "soft")


def _line(log: Path, finding: Finding) -> str:
    """Return the line of a finding; nothing if the log can't be read again, as standard input can't."""
    try:
        return line_of(log, finding.line or 1)
    except (CannotJudge, IndexError):
        return ""


def _published(name: str, accelerators: int | None, content: dict[str, Any]) -> Iterator[str]:
    """Yield published results of as many accelerators if the runs' time can be compared with theirs."""
    minutes = content["score_s"] or content["mean_time_to_train_s"]
    accuracies = [row["best_accuracy"] or 0.0 for row in content["runs"] if row["reached"]]
    if minutes is None or min(accuracies) < MLPERF_TARGET:
        return
    yield page.heading("Published results")
    yield published_beside(name, accelerators, minutes / 60)


def _link(log: Path, folder: Path) -> str:
    """Return the address of a log for a page in `folder`, relative, so that both can move together."""
    return quote(os.fsencode(f"./{os.path.relpath(log, folder)}"))


def _machine(fields: dict[str, str], log: Path, facts: RunFacts) -> str:
    """Return the machine in a line, from log and description."""
    stated = [f"{name.replace('_', ' ')} {fields[name]}" for name in _MACHINE if fields.get(name)]
    processor = described(log, "run.json").get("processor")
    stated += [f"processor {processor}"] if isinstance(processor, str) else []
    division = f"{facts.division or 'unknown'} division"
    return "; ".join([division, f"global batch size {shown(facts.global_batch_size)}", *stated])


def _dates(content: dict[str, Any]) -> str:
    """Return when the first and the last run started."""
    starts = sorted(row["started"] for row in content["runs"] if row["started"])
    if not starts:
        return ""
    first, last = starts[0], starts[-1]
    if first == last:
        return f"started {first} UTC"
    day, _, last_time = last.partition(" ")
    return f"started {first} to {last_time if first.startswith(day) else last} UTC"


def published_beside(name: str, accelerators: int | None, minutes: float) -> str:
    """Return, as HTML, published results with a system's number of accelerators, and its own time among them."""
    if accelerators is None:
        return page.paragraph("No system description gives the number of accelerators to compare with.", "soft")
    same = [r for r in sorted(published_results(), key=lambda r: r.minutes) if r.accelerators == accelerators]
    machines = f"{accelerators} accelerators" if accelerators else "no accelerator, CPUs only"
    if not same:
        return page.paragraph(f"No published result has {machines}.", "soft")
    fastest = {(r.accelerator, r.division): r for r in reversed(same)}.values()
    results = sorted((r.minutes, _label(r), r.division) for r in fastest)[:_MOST_PUBLISHED]
    results.append((minutes, f"{name} (here)", ""))
    rows = [[label, division, f"{time:.2f}"] for time, label, division in sorted(results)]
    caption = f"Published MLPerf results with {machines}: the fastest of each kind"
    note = page.paragraph("Times are comparable if model, data and target are MLPerf's.", "soft")
    return page.table(["system", "division", "minutes to train"], rows, caption) + note


def _label(result: PublishedResult) -> str:
    machine = result.accelerator.removeprefix("NVIDIA ") if result.accelerators else f"{result.nodes} nodes"
    return f"{machine}, {result.submitter} {result.rounds.split(';')[-1]}"
