"""Draw a study of clip modes by number of ranks as one page."""

import statistics
from collections.abc import Sequence

from bertbench.report.charts import Axis, Bar, Series, bars, lines, scatter
from bertbench.report.page import page, panels, paragraph, section, table
from lab.study.compare import samples_of
from lab.study.ranks import Comparison, Found, Row, Study, Tuned, half_share
from lab.study.ranks_definition import RanksDefinition

TABLE_HEAD = ("arm", "against", "difference", "95 % interval", "± of the mean", "seeds", "verdict")


def table_rows(found: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return one row per comparison under `TABLE_HEAD`, differences as shares of the reference arm's mean."""
    return [
        (
            one.difference.arm,
            one.difference.against,
            f"{one.difference.mean / one.reference:+.1%}",
            f"{one.difference.low / one.reference:+.1%} to {one.difference.high / one.reference:+.1%}",
            f"{half_share(one):.1%}",
            str(one.seeds),
            one.difference.verdict + ("" if one.narrow else ", interval wider than the stopping rule allows"),
        )
        for one in found
    ]


def arm_rows(tuned: Sequence[Tuned], rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return each arm's values, the seeds that reached the target, mean samples and share of clipping."""
    answer: list[tuple[str, ...]] = []
    for one in tuned:
        own, samples = [row for row in rows if row.arm == one.arm.name], samples_of(rows, one.arm.name)
        answer.append(
            (
                one.arm.name,
                f"{one.values.learning_rate:.3g}",
                f"{one.values.max_norm:.3g}",
                f"{1 - one.values.one_minus_beta1:.3f}",
                f"{1 - one.values.one_minus_beta2:.4f}",
                f"{len(samples)}/{len(own)}",
                f"{statistics.mean(samples.values()):,.0f}" if samples else "-",
                f"{statistics.mean(row.clipped for row in own):.0%}",
            )
        )
    return answer


ARM_HEAD = ("arm", "learning rate", "max norm", "beta1", "beta2", "reached", "mean samples", "clipped")


def page_of(definition: RanksDefinition, study: Study, found: Found, machine: str) -> str:
    """Return one self-contained HTML file."""
    tuned, rows = found.tuned, found.rows
    tuning, stopping = definition.tuning, definition.stopping
    return page(
        "Study: clip modes by number of ranks",
        paragraph(definition.question),
        paragraph(
            f"Samples until masked accuracy {definition.evaluation.target}, global batch "
            f"{definition.global_batch_size}, ranks in one process. Each arm was tuned with {tuning.trials} runs; its "
            f"{tuning.finalists} best ran {tuning.finalist_seeds} more times. Seeds are added until each half-width "
            f"is at most {stopping.half_width:.0%} of the mean, from {stopping.first_look} to {stopping.max_seeds}; "
            f"{machine}."
        ),
        section(
            "Both arms at the first one's values: only the clip mode differs",
            table(TABLE_HEAD, table_rows(found.at_equal_values)),
            panels(_by_ranks(found.at_equal_values)),
        ),
        section(
            "Each arm at its own values: the luck of its search is in the difference",
            table(TABLE_HEAD, table_rows(found.comparisons)),
            panels(_by_ranks(found.comparisons)),
        ),
        section("Samples to target", panels(_means(tuned, rows), _seeds(rows))),
        section("Tuning", panels(*_tuning(study))),
        section("Numbers", table(ARM_HEAD, arm_rows(tuned, rows))),
    )


def _by_ranks(found: Sequence[Comparison]) -> str:
    """Draw both differences over the number of ranks, with the ends of their intervals."""
    series = []
    for mode, against in (("before", "after"), ("bucket", "before")):
        own = [one for one in found if one.difference.arm.startswith(mode)]
        for name, end in (("", "mean"), (", low end", "low"), (", high end", "high")):
            points = [(float(one.ranks), 100 * getattr(one.difference, end) / one.reference) for one in own]
            series.append(Series(f"{mode} less {against}{name}", sorted(points)))
    return lines(
        "Difference by ranks, with its 95 % interval", series, Axis("ranks", base=2), Axis("% of the mean"), [("0", 0)]
    )


def _means(tuned: Sequence[Tuned], rows: Sequence[Row]) -> str:
    means = [(one.arm.name, list(samples_of(rows, one.arm.name).values())) for one in tuned]
    return bars(
        "Mean samples to target",
        [Bar(name, {"samples": statistics.mean(samples)}, "") for name, samples in means if samples],
        Axis("samples", low=0.0),
    )


def _seeds(rows: Sequence[Row]) -> str:
    series = [Series(arm, list(samples_of(rows, arm).items())) for arm in dict.fromkeys(row.arm for row in rows)]
    return scatter("Every seed", series, Axis("seed"), Axis("samples", low=0.0))


def _tuning(study: Study) -> list[str]:
    """Draw the tuning trials: a panel for each value."""
    trials = {arm.name: study.tried(arm) for arm in study.arms}
    names = next(iter(trials.values()))[0][0]._fields
    return [
        scatter(
            f"Tuning {name}: runs that reached the target",
            [
                Series(arm, [(values[place], samples) for values, samples in own if samples is not None])
                for arm, own in trials.items()
            ],
            Axis(name, base=10),
            Axis("samples", low=0.0),
        )
        for place, name in enumerate(names)
    ]
