"""Draw runs as a page: curves, a table of time to train and where it went, findings, and published results.

Made from the logs. Files that bertbench writes beside them, or a package's systems/, add target, loss, load balance and
the number of accelerators.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bertbench.report import page
from bertbench.report.beside import accuracies, curve, line_of, thinned
from bertbench.report.charts import Axis, lines
from bertbench.report.details import details
from bertbench.report.published import MLPERF_TARGET, beside
from bertbench.report.runs import conclusion, summarized, text_rows
from bertbench.report.settings import Group, Runs, configured, title
from compliance import judge_log
from compliance.read import description
from compliance.read.record import shown
from compliance.read.run import RunFacts, number

_MOST_FINDINGS = 100  # on the page; `bertbench judge` lists all
_MACHINE = ("number_of_nodes", "accelerators_per_node", "accelerator_model_name", "framework", "hw_notes")


def html(found: Sequence[Group], ruleset: str) -> str:
    """Return the page of these runs."""
    return page.page("BERT results", *(_section(group, ruleset) for group in found))


def _section(group: Group, ruleset: str) -> str:
    name, runs, summary = title(group.name, group.settings), group.runs, summarized(group)
    log, facts = next((run for run in runs if run[1].division), runs[0])  # the first readable one
    fields = description.of_log(log)
    accelerators = description.in_all(fields)
    mean, reached = summary["mean_time_to_train_s"], [row for row in summary["runs"] if row["status"] == "success"]
    comparable = mean is not None and all((row["best_accuracy"] or 0.0) >= MLPERF_TARGET for row in reached)
    target = MLPERF_TARGET if facts.division == "closed" else number(configured(log).get("evaluation.target"))
    return page.section(
        name,
        page.paragraph(conclusion(summary)),
        page.paragraph(_machine(fields, facts), tone="soft"),
        page.panels(*_curves(runs, target)),
        page.heading("Every run"),
        page.table(*text_rows(summary)),
        *(page.table(one.header, one.rows, one.caption) for one in details(summary)),
        page.heading("Findings"),
        *_findings([log for log, _ in runs], ruleset),
        page.heading("Published results"),
        beside(name, accelerators, mean / 60 if comparable else None),
    )


def _curves(runs: Runs, target: float | None) -> Iterator[str]:
    """Yield the charts of accuracy, loss and load balance."""
    level = None if target is None else (f"target {target:g}", target)
    accuracy = Axis("masked-LM accuracy", low=0.0)
    by_samples = {log.stem: accuracies(facts) for log, facts in runs}
    by_time = {log.stem: facts.course for log, facts in runs}
    yield lines("Accuracy against samples", by_samples, Axis("training samples", low=0.0), accuracy, level)
    yield lines("Accuracy against time", by_time, Axis("seconds from run_start", low=0.0), accuracy, level)
    for field, caption, axis in (
        ("loss", "Loss", Axis("training loss")),
        ("load_efficiency", "Load balance", Axis("load efficiency: mean / slowest rank", high=1.0)),
    ):
        series = {log.stem: points for log, _ in runs if (points := thinned(curve(log, field)))}
        if series:
            yield lines(caption, series, Axis("step"), axis)


def _findings(logs: Sequence[Path], ruleset: str) -> Iterator[str]:
    """Yield what the judge says of the logs, with the lines that it names."""
    judgements = [judge_log(log, ruleset) for log in logs]
    passed = sum(one.verdict == "pass" for one in judgements)
    breaches = [(log, breach) for log, one in zip(logs, judgements, strict=True) for breach in one.breaches]
    questions = [(log, question) for log, one in zip(logs, judgements, strict=True) for question in one.questions]
    verdict = (
        f"{passed} of {len(logs)} logs pass by ruleset {ruleset}; {len(breaches)} findings, {len(questions)} questions"
    )
    yield page.paragraph(verdict, "good" if passed == len(logs) else "bad")
    for log, breach in breaches[:_MOST_FINDINGS]:
        said = f"found {breach.found}; expected {breach.expected}; {breach.rule.remedy}"
        yield page.paragraph(f"error {breach.rule.id}: {said}; {_place(log, breach.line)}", "bad")
    for log, question in questions[:_MOST_FINDINGS]:
        said = f"{question.figure}; usual: {question.topic.usual}"
        yield page.paragraph(f"question {question.topic.id}: {said}; {_place(log, question.line)}", "soft")


def _place(log: Path, line: int | None) -> str:
    return log.name if line is None else f"{log.name}:{line}: {line_of(log, line)}"


def _machine(fields: dict[str, str], facts: RunFacts) -> str:
    """Return the machine in a line, from log and description."""
    described = (f"{name.replace('_', ' ')} {fields[name]}" for name in _MACHINE if fields.get(name))
    run = (f"{facts.division} division", f"global batch size {shown(facts.global_batch_size)}")
    return "; ".join([*run, *described])
