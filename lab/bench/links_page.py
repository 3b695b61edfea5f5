"""Present `lab links`: a table, the bandwidths at which methods cross, and one page with plots."""

from collections.abc import Sequence

from bertbench.report.charts import Axis, Series, lines
from bertbench.report.page import listing, page, panels, paragraph, section, table, toned
from lab.bench.links import EVERY_STEP, Row, cost, crossings

_HEADER = ("Mbit/s", "latency ms", "way", "samples/s", "samples to target", "seconds to target", "times every_step")


def table_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and one row per run; the last column is the speed relative to every_step on the same link."""
    plain = {(row.mbit, row.latency_ms): row for row in rows if row.way == EVERY_STEP}
    body = []
    for row in rows:
        base = plain.get((row.mbit, row.latency_ms))
        comparable = base is not None and base.reached == row.reached
        body.append(
            (
                f"{row.mbit:g}", f"{row.latency_ms:g}", row.way, f"{row.samples_per_s:,.0f}",
                f"{row.samples:,}" if row.reached else "-", f"{row.seconds:,.1f}" if row.reached else "-",
                f"{cost(base) / cost(row):.2f}" if base and comparable else "-",
            )
        )  # fmt: skip
    return [_HEADER, *body]


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Say at which bandwidth methods take as long as every_step, and which are faster or slower at all of several."""
    found = list(crossings(rows))
    said = [f"{way} takes as long as {EVERY_STEP} at {mbit:,.0f} Mbit/s, latency {ms:g} ms" for way, ms, mbit in found]
    plain = {(row.mbit, row.latency_ms): row for row in rows if row.way == EVERY_STEP}
    alike: dict[tuple[str, float], list[str]] = {}
    for way, latency_ms in dict.fromkeys((row.way, row.latency_ms) for row in rows if row.way != EVERY_STEP):
        own = [row for row in rows if (row.way, row.latency_ms) == (way, latency_ms)]
        pairs = [(row, plain.get((row.mbit, latency_ms))) for row in own]
        gaps = [cost(row) - cost(base) for row, base in pairs if base and base.reached == row.reached]
        if len(gaps) > 1 and (way, latency_ms) not in {(name, ms) for name, ms, _ in found}:
            alike.setdefault(("faster" if gaps[0] < 0 else "slower", latency_ms), []).append(way)
    return said + [
        f"{which} than {EVERY_STEP} at all bandwidths measured, latency {latency_ms:g} ms: {', '.join(ways)}"
        for (which, latency_ms), ways in alike.items()
    ]


def page_of(rows: Sequence[Row], system: str, machine: str) -> str:
    """Return one self-contained HTML file."""
    header, *body = table_rows(rows)
    latencies = list(dict.fromkeys(row.latency_ms for row in rows))
    to_target, said = any(row.reached for row in rows), verdicts(rows)
    charts = [
        lines(
            f"{'Seconds to the target' if to_target else 'Samples a second'}, latency {latency:g} ms",
            [Series(way, points) for way, points in _curves(rows, latency, to_target).items()],
            Axis("Mbit/s", base=10),
            Axis("s", base=10) if to_target else Axis("samples/s", base=10),
        )
        for latency in latencies
    ]
    return page(
        "Bench: links",
        paragraph(
            f"{system} on two ranks, each in its own network namespace, bandwidth limited by tc, latency one way; "
            f"{machine}. One seed: a method needs the same samples to the target over every link."
        ),
        section("Over bandwidth", panels(*charts)),
        section("Runs", table(header, body)),
        *([section("Where they cross", listing([toned(line) for line in said]))] if said else []),
    )


def _curves(rows: Sequence[Row], latency_ms: float, to_target: bool) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: row.mbit):
        if row.latency_ms == latency_ms and row.reached == to_target:
            curves.setdefault(row.way, []).append((row.mbit, row.seconds if to_target else row.samples_per_s))
    return curves
