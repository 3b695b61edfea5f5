"""Present `lab links`: a table, and the bandwidths at which methods cross."""

from collections.abc import Sequence

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
