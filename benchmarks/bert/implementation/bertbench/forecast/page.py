"""Draw forecasts as a page: time by GPUs with published results, where the time goes, forecast beside published."""

from collections.abc import Sequence

from bertbench.forecast.calibrate import Comparison
from bertbench.forecast.forecast import LIMITS, Forecast
from bertbench.report.charts import Axis, Bar, Series, bars, scatter
from bertbench.report.page import page, panels, paragraph, section, table


def forecast_page(forecasts: Sequence[Forecast], held: Sequence[Comparison], others: Sequence[Comparison]) -> str:
    """Return one self-contained HTML page; the first chart is log-log, to span 8 to 1,024 GPUs."""
    drawn = [
        Series(f"forecast, {one}", [(f.system.world_size, f.minutes, f"{f.system.name}: {f.range} min")
                                    for f in forecasts if f.system.hardware.division == one])
        for one in ("closed", "open")
    ]  # fmt: skip
    published = [
        Series(name, [(c.row.accelerators or 1, c.row.seconds / 60,
                       f"{c.row.submitter} {c.row.system}: {c.row.seconds / 60:.2f} min") for c in group])
        for name, group in (("published, calibrating", held), ("published, other A100s", others))
    ]  # fmt: skip
    rows = [Bar(f"{f.system.name}: {f.range} min", {part: value / f.seconds.total for part, value in
            vars(f.seconds).items()}, note=f.seconds.limit) for f in forecasts]  # fmt: skip
    return page(
        "Time to train: forecast",
        section(
            "Forecasts",
            paragraph("Minutes from run_start to run_stop, as a range that holds nine of ten published results. "
                      "Point at a dot for its value."),
            panels(
                scatter("Time to train against GPUs", [*drawn, *published], Axis("GPUs", base=2),
                        Axis("minutes", base=10)),
                bars("Where the time goes", rows, Axis("share of the run", 0, 1)),
            ),
            table(["system", "GPUs", "minutes", "samples to converge", "limited by"],
                  [[f.system.name, f"{f.system.world_size:,}", str(f.range), f"{f.samples.number:,.0f}",
                    LIMITS[f.seconds.limit]] for f in forecasts]),
        ),
        section(
            "Held against published results",
            paragraph("Each row was forecast by a calibration without it."),
            _comparisons(held),
        ),
        section(
            "Other A100 results",
            paragraph("Forecast as if they were DGX A100s: PCIe cards, smaller nodes and slower networks take longer."),
            _comparisons(others),
        ),
    )  # fmt: skip


def _comparisons(rows: Sequence[Comparison]) -> str:
    return table(
        ["system", "submitter", "round", "GPUs", "forecast min", "published min", "error"],
        [[c.row.system, c.row.submitter, c.row.rounds, f"{c.row.accelerators:,}", f"{c.predicted_s / 60:.2f}",
          f"{c.row.seconds / 60:.2f}", f"{100 * c.error:+.1f} %"] for c in rows],
    )  # fmt: skip
