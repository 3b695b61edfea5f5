"""Show what a study found: two tables, and one page with charts."""

import statistics
from collections.abc import Sequence

from bertbench.report.charts import Axis, Bar, Series, bars, scatter
from bertbench.report.page import page, panels, paragraph, section, table
from lab.study.engine import Study
from lab.study.intervals import Comparison, Row, half_interval, samples_of

PAIR_HEAD = ("arm", "against", "difference", "95 % interval", "± of the mean", "seeds", "verdict")


def pair_rows(found: Sequence[Comparison], narrow: float | None = None) -> list[tuple[str, ...]]:
    """Return one row per comparison under `PAIR_HEAD`, differences as shares of the reference arm's mean."""
    rows: list[tuple[str, ...]] = []
    for pair in found:
        (mean, low, high), apart = pair.shares, pair.difference
        wide = narrow is not None and pair.half_width > narrow
        verdict = apart.verdict + (", interval wider than the stopping rule allows" if wide else "")
        cells = f"{mean:+.1%}", f"{low:+.1%} to {high:+.1%}", f"{pair.half_width:.1%}", str(pair.seeds), verdict
        rows.append((apart.arm, apart.against, *cells))
    return rows


def arm_head(study: Study) -> tuple[str, ...]:
    """Return the heads of `arm_rows`."""
    return ("arm", *study.values(study.arms[0].name), "reached", "mean samples", "± 95 %", "clipped")


def arm_rows(study: Study, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return each arm's values, the seeds that reached the target, mean samples and share of clipping."""
    answer = []
    for arm in study.arms:
        own, samples = [row for row in rows if row["arm"] == arm.name], list(samples_of(rows, arm.name).values())
        half = half_interval(samples)
        answer.append(
            (
                arm.name,
                *(f"{value:.4g}" for value in study.values(arm.name).values()),
                f"{len(samples)}/{len(own)}",
                f"{statistics.mean(samples):,.0f}" if samples else "-",
                "-" if half is None else f"{half:,.0f}",
                f"{statistics.mean(row['clipped'] for row in own):.0%}",
            )
        )
    return answer


def page_of(
    title: str, lines: Sequence[str], study: Study, rows: Sequence[Row], found: Sequence[Comparison], *more: str
) -> str:
    """Return one self-contained HTML file; `lines` describe the study, `more` are sections that it adds."""
    return page(
        title,
        *map(paragraph, lines),
        section("Answer", table(PAIR_HEAD, pair_rows(found))),
        *more,
        section("Samples to target", panels(means(rows), _seeds(rows))),
        *([section("Tuning", panels(*_tuning(study)))] if study.budget else []),
        section("Numbers", table(arm_head(study), arm_rows(study, rows))),
    )


def means(rows: Sequence[Row]) -> str:
    """Draw every arm's mean samples to target."""
    samples = {arm: list(samples_of(rows, arm).values()) for arm in dict.fromkeys(row["arm"] for row in rows)}
    drawn = [Bar(arm, {"samples": statistics.mean(own)}, _half(own)) for arm, own in samples.items() if own]
    return bars("Mean samples to target, ± 95 % interval", drawn, Axis("samples", low=0.0))


def _half(samples: Sequence[float]) -> str:
    half = half_interval(samples)
    return "" if half is None else f"± {half:,.0f}"


def _seeds(rows: Sequence[Row]) -> str:
    arms = dict.fromkeys(row["arm"] for row in rows)
    series = [Series(arm, list(samples_of(rows, arm).items())) for arm in arms]
    return scatter("Every seed", series, Axis("seed"), Axis("samples", low=0.0))


def _tuning(study: Study) -> list[str]:
    """Draw the tuning trials: a panel for each value."""
    return [
        scatter(
            f"Tuning {name}: runs that reached the target",
            [
                Series(arm.name, [(trial[name], trial["samples"]) for trial in study.tried(arm.name)
                                  if trial["samples"] is not None])
                for arm in study.arms
            ],
            Axis(name, base=10),
            Axis("samples", low=0.0),
        )
        for name in study.values(study.arms[0].name)
    ]  # fmt: skip
