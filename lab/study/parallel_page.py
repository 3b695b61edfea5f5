"""Present `lab parallel`: a table, the conclusions that its figures support, and one page with plots."""

from collections.abc import Sequence

from bertbench.parallel.theory import bubble
from bertbench.report.charts import Axis, Bar, Series, bars, lines
from bertbench.report.page import listing, page, panels, paragraph, section, table, toned
from lab.study.parallel import PARTS, Row, medians

_HEADER = (
    "layout", "ranks", "runtime s", "samples/s", "validation loss", "accuracy %", "busy % of each rank", "noise scale",
    "efficiency %", "goodput", "MFU %",
)  # fmt: skip
_ROUNDING = 1e-3  # in the loss after some hundred steps; layouts of one seed differed by 3e-7 after 150


def table_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and one row per layout, medians over the seeds."""
    return [
        _HEADER,
        *(
            (
                row.layout, str(row.ranks), f"{row.runtime_s:.1f}", f"{row.samples_per_s:.0f}",
                f"{row.validation_loss:.4f}", f"{100 * row.accuracy:.2f}",
                " ".join(f"{100 * share:.0f}" for share in row.utilisation),
                "" if row.gradient_noise_scale is None else f"{row.gradient_noise_scale:.0f}",
                f"{100 * row.statistical_efficiency:.0f}", f"{row.goodput:.0f}",
                f"{100 * row.model_flop_utilisation:.0f}",
            )
            for row in medians(rows)
        ),
    ]  # fmt: skip


def concluded(rows: Sequence[Row], cores: int) -> list[str]:
    """Return the conclusions that these rows support, measured on `cores` cores."""
    seeds = [[row for row in rows if row.seed == seed] for seed in sorted({row.seed for row in rows})]
    losses = [[row.validation_loss for row in own] for own in seeds]
    apart = max(max(own) - min(own) for own in losses)
    samples = rows[0].curve[-1][0]
    efficiencies = [row.statistical_efficiency for row in rows]
    others = [row for row in medians(rows)[1:] if row.ranks <= cores]
    alike = "Layouts train alike" if apart < _ROUNDING else "Layouts do not train alike"
    lines = [
        f"{alike}: validation losses after {samples:,} samples of one seed differ by {apart:.1g} at most.",
        "The global batch is the same, so all layouts estimate one statistical efficiency: "
        f"{100 * min(efficiencies):.0f} to {100 * max(efficiencies):.0f} %. Within that spread, goodput ranks layouts "
        "as samples a second do.",
    ]
    for row in others:
        if len(seeds) > 1:  # one timing alone may measure other work on the machine
            pairs = [(own[0], split) for own in seeds for split in own if split.layout == row.layout]
            speeds = [split.samples_per_s / alone.samples_per_s for alone, split in pairs]
            lines.append(f"{row.layout} is {min(speeds):.2f} to {max(speeds):.2f} times as fast as one rank alone.")
        if row.layout.startswith("pipeline"):
            most = 1 / (1 + bubble(row.ranks, PARTS))
            lines.append(f"The bubble of {row.layout} limits a rank to {100 * most:.0f} % of a lone rank's busy share.")
    return lines


def not_concluded(rows: Sequence[Row], cores: int) -> list[str]:
    """Return the questions that these rows leave open, for lack of cores, links and size."""
    crowded = [row.layout for row in medians(rows) if row.ranks > cores]
    lines = [
        "What a layout costs on GPUs or over a network: here ranks communicate through main memory, on the cores that "
        "compute.",
        "Which layout a large model needs: pipelines serve models that don't fit one device, and this one does.",
        "What a larger batch gains: the noise scale was measured early in training, and grows later.",
    ]
    if crowded:
        lines.insert(
            0,
            f"The speed of {' and '.join(crowded)} with a core for each rank: this machine has {cores} cores. Ranks "
            "share them, within operators too, so busy shares come out too high.",
        )
    if len({row.seed for row in rows}) == 1:
        lines.append("Speeds: every layout ran once, along with the machine's other work. --seeds repeats the runs.")
    return lines


def page_of(rows: Sequence[Row], system: str, machine: str, cores: int) -> str:
    """Return one self-contained HTML file."""
    header, *body = table_rows(rows)
    middle = medians(rows)
    return page(
        "Study: parallel layouts",
        paragraph(
            f"{system} trained under five layouts at equal global batch, each step in {PARTS} parts, one thread a "
            f"rank; medians over seeds ({len({row.seed for row in rows})} run); {machine}."
        ),
        section("Layouts", table(header, body)),
        section(
            "Speed and learning",
            panels(
                bars("Samples a second", _bars(middle, "samples_per_s"), Axis("samples/s", low=0.0)),
                bars("Goodput: times statistical efficiency", _bars(middle, "goodput"), Axis("samples/s", low=0.0)),
                lines(
                    "Validation loss, first seed",
                    [Series(row.layout, row.curve) for row in middle],
                    Axis("samples"),
                    Axis("cross-entropy"),
                ),
                bars(
                    "Busy share of each rank",
                    [
                        Bar(f"{row.layout}, rank {rank}", {"busy": share}, f"{share:.0%}")
                        for row in middle
                        for rank, share in enumerate(row.utilisation)
                    ],
                    Axis("share of the time", low=0.0, high=1.0),
                ),
            ),
        ),
        section("What this shows", listing([toned(point) for point in concluded(rows, cores)])),
        section("What this doesn't show", listing([toned(point) for point in not_concluded(rows, cores)])),
    )


def _bars(rows: Sequence[Row], name: str) -> list[Bar]:
    return [Bar(row.layout, {"samples/s": getattr(row, name)}, f"{getattr(row, name):.0f}") for row in rows]
