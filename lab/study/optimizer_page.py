"""A study of optimizers as one page, and the tables that its command prints."""

from collections.abc import Sequence

from bertbench.report.charts import Axis, Series, lines, scatter
from bertbench.report.markup import escape
from bertbench.report.page import folded, listing, page, panels, paragraph, section, table
from lab.study.optimizer import OptimizerStudy, Result
from lab.study.optimizer_compare import Comparison, Findings, Pooled, Summary
from lab.study.optimizer_definition import Arm, Cell, OptimizerDefinition

POOLED_HEAD = ("arm", "against", "cells", "both reached", "samples", "95 % interval", "seconds", "verdict")
ARM_HEAD = ("arm", "rate", "decay", "beta1", "beta2", "decay samples", "EMA window", "reached", "samples",
            "95 % interval", "ms a step", "seconds")  # fmt: skip
_PAIR_HEAD = ("arm", "against", "samples", "95 % interval", "verdict", "seed by seed", "95 % interval", "seconds")

RULE = (
    "One stopping step for all seeds: an arm's samples to target are those at which the mean accuracy of all its seeds "
    "crosses the target, by a straight line between two evaluations; seeds that never get there count in the mean. "
    "Intervals are 95 %: by 4,000 bootstraps over the seeds (the same draws for both arms of a ratio), by Student's t "
    "over the cells of a geometric mean, and over the seeds where each seed is stopped by itself."
)
LIMITS = (
    "Intervals within a cell cover the luck of seeds, not that of tuning, which was one search for each arm. Intervals "
    "over cells cover both.",
    "Each interval is taken by itself: of twenty 95 % intervals one leaves out the truth.",
    "The models are tiny and the language is made up: what holds at 336 million parameters is not decided here.",
    "The target is crossed while the rate still decays: at higher targets the order may be another.",
    "Seconds are those of tiny matrices on one thread of a busy machine. There, calls cost more than arithmetic; "
    "bertbench lab optim has the steps of BERT-Large. Evaluations are not counted.",
    "Gradients are not clipped, and nothing is drawn twice: no arm can overfit, so weight decay matters little.",
)


def pooled_rows(found: Sequence[Pooled]) -> list[tuple[str, ...]]:
    """Return ratios over cells; heads are `POOLED_HEAD`."""
    return [
        (pooled.arm, pooled.against, pooled.cells, f"{pooled.counted}/{pooled.total}", _times(pooled.samples),
         _interval(pooled.low, pooled.high, ".2f"), _times(pooled.seconds), pooled.verdict)
        for pooled in found
    ]  # fmt: skip


def arm_rows(found: Sequence[Summary]) -> list[tuple[str, ...]]:
    """Return each arm's values and where it got to the target; heads are `ARM_HEAD`."""
    return [
        (arm.arm, f"{arm.values['learning_rate']:.3g}", f"{arm.values['weight_decay']:.2g}",
         f"{1 - arm.values['one_minus_beta1']:.3f}", f"{1 - arm.values['one_minus_beta2']:.3f}",
         f"{arm.values['decay_samples']:,.0f}", "" if arm.ema_window is None else f"{arm.ema_window:g}",
         f"{arm.reached}/{arm.seeds}", _count(arm.samples_to_target),
         _interval(arm.samples_low, arm.samples_high, ",.0f"), f"{1e3 * arm.step_seconds:.2f}",
         "" if arm.seconds_to_target is None else f"{arm.seconds_to_target:.2f}")
        for arm in found
    ]  # fmt: skip


def page_of(
    definition: OptimizerDefinition,
    study: OptimizerStudy,
    results: Sequence[Result],
    findings: Findings,
    machine: str,
) -> str:
    """One self-contained HTML file."""
    tuning, cells = definition.tuning, list(dict.fromkeys(result.arm.cell for result in results))
    return page(
        "Study: optimizers",
        paragraph(definition.question),
        paragraph(
            f"Samples and seconds until masked accuracy {definition.target} of a made-up language, beyond the plateau "
            f"of word frequencies; {definition.seeds} seeds an arm, the same for all; {machine}. Each optimizer was "
            f"tuned on each cell with {tuning.trials} runs over rate, weight decay, both betas and length of the "
            f"rate's decay; the {tuning.finalists} best for either read-out ran {tuning.finalist_seeds} seeds more. An "
            "average (EMA) is read out at the evaluations of the same runs, so it costs no run."
        ),
        section("Rule", paragraph(RULE), listing([escape(limit) for limit in LIMITS])),
        section("Answer", table(POOLED_HEAD, pooled_rows([mean for mean in findings.pooled if mean.cells == "all"])),
                panels(*_by_batch(findings.summaries))),
        section("By start, width and batch",
                table(POOLED_HEAD, pooled_rows([mean for mean in findings.pooled if mean.cells != "all"]))),
        section("Mean accuracy of the seeds", panels(*(_curves(definition, results, cell) for cell in cells))),
        section("Each cell", table(_PAIR_HEAD, _pair_rows(findings.comparisons))),
        section("Numbers", table(ARM_HEAD, arm_rows(findings.summaries)),
                folded("Tuning", panels(*(_tuning(definition, study, cell) for cell in cells)))),
    )  # fmt: skip


def _pair_rows(found: Sequence[Comparison]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for pair in found:
        ours, apart = pair.samples, pair.difference
        rows.append(
            (pair.arm, pair.against, _times(None if ours is None else ours.mean),
             "" if ours is None else _interval(ours.low, ours.high, ".2f"),
             "not both reached" if ours is None else ours.verdict,
             "" if apart is None else f"{apart.mean:+,.0f}",
             "" if apart is None else _interval(apart.low, apart.high, "+,.0f"), _times(pair.seconds))
        )  # fmt: skip
    return rows


def _by_batch(summaries: Sequence[Summary]) -> list[str]:
    """Draw samples to target over the batch: a panel for each start and width, without averages."""
    charts = []
    for start, hidden in dict.fromkeys((arm.start, arm.hidden) for arm in summaries):
        points: dict[str, list[tuple[float, float]]] = {}
        for arm in summaries:
            if (arm.start, arm.hidden, arm.ema) == (start, hidden, False):
                own = points.setdefault(arm.optimizer, [])
                if arm.samples_to_target is not None:
                    own.append((arm.batch, arm.samples_to_target))
        series = [Series(name, sorted(own)) for name, own in points.items()]
        charts.append(lines(f"Samples to target: {_described(start)}, width {hidden}", series,
                            Axis("batch", base=2), Axis("samples", base=2)))  # fmt: skip
    return charts


def _curves(definition: OptimizerDefinition, results: Sequence[Result], cell: Cell) -> str:
    series = []
    for result in results:
        if result.arm.cell == cell and not result.ema:
            means = result.group.curves_of(result.choice.read_out).mean(0)
            points = [(place * result.group.interval, float(mean)) for place, mean in enumerate(means)]
            series.append(Series(result.arm.optimizer, points))
    title = f"{_described(cell.start)}, width {cell.hidden}, batch {cell.batch}"
    return lines(title, series, Axis("samples"), Axis("accuracy"), [("target", definition.target)])


def _tuning(definition: OptimizerDefinition, study: OptimizerStudy, cell: Cell) -> str:
    series = []
    for optimizer in definition.learning_rates:
        reached = [(values.learning_rate, samples[0]) for values, samples in study.tried(Arm(optimizer, cell))]
        series.append(Series(optimizer, [(rate, samples) for rate, samples in reached if samples is not None]))
    title = f"Runs that reached the target: {_described(cell.start)}, width {cell.hidden}, batch {cell.batch}"
    return scatter(title, series, Axis("learning rate", base=10), Axis("samples", low=0.0))


def _described(start: str) -> str:
    return "random weights" if start == "random" else "common checkpoint"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} times"


def _count(value: float | None) -> str:
    return "missed" if value is None else f"{value:,.0f}"


def _interval(low: float | None, high: float | None, form: str) -> str:
    return " to ".join("beyond the runs" if end is None else format(end, form) for end in (low, high))
