"""Draw a study as one page: verdicts, samples to target by arm, accuracy over samples, tuning trials."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from bertbench.report.charts import Axis, Bar, Series, bars, lines, scatter
from bertbench.report.page import page, panels, paragraph, section, table
from bertbench.results.files import ResultFiles
from compliance.log import read_events
from compliance.run import RunFacts
from lab.study.compare import Difference, Row, Summary, files_of
from lab.study.definition import Definition


def page_of(
    title: str,
    definition: Definition,
    folder: Path,
    rows: Sequence[Row],
    summaries: Sequence[Summary],
    found: Sequence[Difference],
    machine: str,
) -> str:
    """Return one self-contained HTML file; `folder` holds the study's runs."""
    target = definition.trial_system(next(iter(definition.arms)), {}).evaluation.target
    return page(
        title,
        paragraph(definition.question),
        paragraph(
            f"{definition.system}: samples until masked-LM accuracy {target}, mean with 95 % interval (Student's t; "
            f"differences seed by seed). Each arm was tuned with {definition.tuning_trials} runs; {machine}."
        ),
        section("Answer", _differences(found)),
        section("Samples to target", panels(_means(summaries), _seeds(rows))),
        section("On the way", panels(_curves(definition, folder, rows, target), *_tuning(definition, folder))),
        section("Numbers", _numbers(summaries)),
    )


def _differences(found: Sequence[Difference]) -> str:
    return table(
        ("arm", "against", "difference", "95 % interval", "the arm needs"),
        [
            (one.arm, one.against, f"{one.mean:+,.0f}", f"{one.low:+,.0f} to {one.high:+,.0f}", one.verdict)
            for one in found
        ],
    )


def _means(summaries: Sequence[Summary]) -> str:
    rows = [
        Bar(one.arm, {"samples": one.mean or 0.0}, f"± {one.half_interval:,.0f}" if one.half_interval else "")
        for one in summaries
    ]
    return bars("Mean samples to target, ± 95 % interval", rows, Axis("samples", low=0.0))


def _seeds(rows: Sequence[Row]) -> str:
    series = [
        Series(arm, [(row.seed, row.samples_to_target) for row in rows if row.arm == arm and row.samples_to_target])
        for arm in dict.fromkeys(row.arm for row in rows)
    ]
    return scatter("Every seed", series, Axis("seed"), Axis("samples", low=0.0))


def _curves(definition: Definition, folder: Path, rows: Sequence[Row], target: float) -> str:
    """Draw accuracy over samples: the median of an arm's seeds as long as all of them run."""
    series = []
    for arm in definition.arms:
        runs = [_accuracies(files_of(folder, arm, row.seed)) for row in rows if row.arm == arm]
        shared = sorted(set.intersection(*map(set, runs))) if runs else []
        series.append(Series(arm, [(samples, statistics.median(run[samples] for run in runs)) for samples in shared]))
    return lines("Accuracy, median of the seeds", series, Axis("samples"), Axis("accuracy"), [("target", target)])


def _tuning(definition: Definition, folder: Path) -> list[str]:
    """Draw the tuning trials: a panel for each value."""
    from lab.study.tune import tried  # noqa: PLC0415 - Optuna is an optional extra

    trials = {arm: tried(folder, arm) for arm in definition.arms}
    return [
        scatter(
            f"Tuning {name}: runs that reached the target",
            [
                Series(
                    arm,
                    [(values[name], samples) for values, samples in own if samples is not None],
                    [f"{values[name]:.3g}: {samples:,.0f}" for values, samples in own if samples is not None],
                )
                for arm, own in trials.items()
            ],
            Axis(name, base=10),
            Axis("samples", low=0.0),
        )
        for name in definition.space
    ]


def _numbers(summaries: Sequence[Summary]) -> str:
    names = list(summaries[0].values)
    return table(
        ("arm", *names, "seeds", "reached", "mean samples", "± 95 %", "steps clipped"),
        [
            (
                one.arm,
                *(f"{one.values[name]:.3g}" for name in names),
                str(one.seeds),
                str(one.reached),
                "" if one.mean is None else f"{one.mean:,.0f}",
                "" if one.half_interval is None else f"{one.half_interval:,.0f}",
                f"{100 * one.clipped_steps:.0f}",
            )
            for one in summaries
        ],
        caption="steps clipped: in percent",
    )


def _accuracies(files: ResultFiles) -> dict[float, float]:
    """Return one run's accuracy by samples."""
    found = RunFacts(read_events(files.log)).evaluations
    return {one.samples: one.accuracy for one in found if one.samples is not None}
