"""Draw runs as a page: accuracy curves, which runs count, where time went, findings, and published results.

Made from the logs. Files that bertbench writes beside them, or a package's systems/, add target, loss, load balance and
the number of accelerators.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertbench.report import page
from bertbench.report.beside import accuracies, curve, described, line_of, thinned
from bertbench.report.charts import Axis, Bar, Series, bars, lines
from bertbench.report.details import details
from bertbench.report.published import MLPERF_TARGET, beside
from bertbench.report.runs import conclusion, summarized, text_rows
from bertbench.report.settings import Group, Runs, configured, title
from compliance import description
from compliance.judge import judge
from compliance.record import shown
from compliance.run import RunFacts, number

_MOST_FINDINGS = 100  # on the page; `bertbench judge` lists all
_MOST_PARTS = 30
_RUN_KINDS = ("counts", "dropped", "did not reach the target")
_TIMES = (("start-up", "startup_s"), ("training", "steps_s"), ("evaluation", "evaluation_s"))


def html(found: Sequence[Group], ruleset: str) -> str:
    """Return the page of these runs."""
    rows, sections = [], []
    for group in found:
        summary, name = summarized(group), title(group.name, group.settings)
        minutes = (summary["mean_time_to_train_s"] or 0.0) / 60
        rows.append(Bar(name, {"time to train": minutes}, f"{minutes:.2f}" if minutes else "no result"))
        sections.append(_section(name, group.runs, summary, ruleset))
    if len(found) > 1:
        overview = bars("Time to train by system", rows, Axis("minutes, mean of the runs that count"))
        sections.insert(0, page.section("Systems", page.panels(overview)))
    heading = ", ".join(row.label for row in rows[:3]) + (" and others" if len(rows) > 3 else "")
    return page.page(f"BERT results: {heading}", *sections)


def _section(name: str, runs: Runs, summary: dict[str, Any], ruleset: str) -> str:
    log, facts = next((run for run in runs if run[1].division), runs[0])  # the first readable one
    fields = description.of_log(log)
    accelerators = description.in_all(fields)
    mean, reached = summary["mean_time_to_train_s"], [row for row in summary["runs"] if row["status"] == "success"]
    comparable = mean is not None and all((row["best_accuracy"] or 0.0) >= MLPERF_TARGET for row in reached)
    target = MLPERF_TARGET if facts.division == "closed" else number(configured(log).get("evaluation.target"))
    return page.section(
        name,
        page.paragraph(conclusion(summary)),
        page.paragraph(_machine(fields, facts, accelerators), tone="soft"),
        page.panels(*_curves(runs, target, summary), *_profile_charts(runs)),
        page.heading("Every run"),
        page.table(*text_rows(summary)),
        *(page.table(one.header, one.rows, one.caption) for one in details(summary)),
        page.heading("Findings"),
        *_findings([log for log, _ in runs], ruleset),
        page.heading("Published results"),
        beside(name, accelerators, mean / 60 if comparable else None),
    )


def _curves(runs: Runs, target: float | None, summary: dict[str, Any]) -> Iterator[str]:
    """Yield the charts of accuracy, time, loss and load balance."""
    longest = max(row["time_to_train_s"] or 0.0 for row in summary["runs"])
    unit, seconds = ("minutes", 60.0) if longest > 600 else ("seconds", 1.0)
    levels = [] if target is None else [(f"target {target:g}", target)]
    accuracy = Axis("masked-LM accuracy", low=0.0)
    by_samples = [Series(log.stem, accuracies(facts)) for log, facts in runs]
    by_time = [Series(log.stem, [(time / seconds, found) for time, found in facts.course]) for log, facts in runs]
    yield lines("Accuracy against samples", by_samples, Axis("training samples", low=0.0), accuracy, levels)
    yield lines("Accuracy against time", by_time, Axis(f"{unit} from run_start", low=0.0), accuracy, levels)
    yield bars("Time to train: which runs count", list(_counted(summary, seconds)), Axis(unit))
    where = [
        Bar(
            Path(row["log"]).stem,
            {name: (row[key] or 0.0) / seconds for name, key in _TIMES},
            f"evaluation {row['evaluation_s'] / row['time_to_train_s']:.1%}" if row["time_to_train_s"] else "",
        )
        for row in summary["runs"]
    ]
    yield bars("Where the time went", where, Axis(unit))
    for field, caption, axis in (
        ("loss", "Loss", Axis("training loss")),
        ("load_efficiency", "Load balance", Axis("load efficiency: mean / slowest rank", high=1.0)),
    ):
        series = [Series(log.stem, points) for log, _ in runs if (points := thinned(curve(log, field)))]
        if series:
            yield lines(caption, series, Axis("step"), axis)


def _counted(summary: dict[str, Any], seconds: float) -> Iterator[Bar]:
    for row in summary["runs"]:
        if row["not_a_result"]:
            continue
        time = (row["time_to_train_s"] or 0.0) / seconds
        what = _RUN_KINDS[0 if row["counted"] else 1 if row["status"] == "success" else 2]
        yield Bar(Path(row["log"]).stem, dict.fromkeys(_RUN_KINDS, 0.0) | {what: time}, f"{time:,.1f}")
    if mean := summary["mean_time_to_train_s"]:
        yield Bar("mean of those that count", {"mean": mean / seconds}, f"{mean / seconds:,.2f}", strong=True)


def _profile_charts(runs: Runs) -> Iterator[str]:
    """Yield where a step's time went, from profile.json of each run that was profiled."""
    for log, _ in runs:
        parts = described(log, "profile.json").get("parts_ms")
        found = {name: ms for name, value in parts.items() if (ms := number(value))} if isinstance(parts, dict) else {}
        step = sum(found.values())
        rows = [Bar(name, {"time": ms}, f"{ms / step:.1%}") for name, ms in list(found.items())[:_MOST_PARTS]]
        if rows:
            yield bars(f"Where a step's time goes: {log.stem}", rows, Axis("ms, rank 0"))


def _findings(logs: Sequence[Path], ruleset: str) -> Iterator[str]:
    """Yield what the judge says of the logs, with the lines that it names."""
    judgements = [judge(log, ruleset) for log in logs]
    passed = sum(one.verdict == "pass" for one in judgements)
    found = [(log, finding) for log, one in zip(logs, judgements, strict=True) for finding in one.findings]
    verdict = f"{passed} of {len(logs)} logs pass by ruleset {ruleset}; {len(found)} findings"
    yield page.paragraph(verdict, "good" if passed == len(logs) else "bad")
    for log, one in found[:_MOST_FINDINGS]:
        where = log.name if one.line is None else f"{log.name}:{one.line}: {line_of(log, one.line)}"
        text = f"{one.severity} {one.rule}: found {one.found}; expected {one.expected}; {one.remedy}; {where}"
        yield page.paragraph(text, "bad" if one.severity == "error" else "soft")


def _machine(fields: dict[str, str], facts: RunFacts, accelerators: int | None) -> str:
    """Return the machine in a line, from log and description."""
    parts = [f"{facts.division} division", f"global batch size {shown(facts.global_batch_size)}"]
    if accelerators is not None:
        model = fields.get("accelerator_model_name") or "accelerator"
        each = f"in each {fields['accelerators_per_node']} x {model}" if accelerators else "CPUs only"
        parts.append(f"nodes: {fields['number_of_nodes']}, {each}")
    return "; ".join([*parts, *(fields[name] for name in ("framework", "hw_notes") if fields.get(name))])
