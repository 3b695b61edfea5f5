"""Say what the records of benches show, by their numbers; a record of a new bench needs a function here."""

from collections.abc import Callable, Iterator

from bertbench.common.intervals import of_geometric_mean
from docs.site.claim import Claim, Record, interval, ratio_claim
from lab.bench.harness import Ratio
from lab.bench.squad_run import BASELINE
from lab.bench.step import MeasuredProgram, fastest_unbiased
from lab.bench.train_result import OURS


def _step_claims(record: Record) -> Iterator[Claim]:
    ratios = [program.ours_is for program in fastest_baselines(record)]
    speed_ups = [speed_up for speed_up, *_ in ratios]
    ends = ""
    if all(low is not None for _, low, _ in ratios):
        ends = interval(min(low or 0 for _, low, _ in ratios), max(high or 0 for *_, high in ratios), ".2f")
    text = f"Speed-up of a step over the fastest baseline, in {len(ratios)} sizes and formats"
    yield Claim(text, f"{min(speed_ups):.2f} to {max(speed_ups):.2f}", ends)


def fastest_baselines(record: Record) -> list[MeasuredProgram]:
    """Return the fastest baseline of each size and format whose batches are drawn at random."""
    by_format: dict[tuple[str, str], list[MeasuredProgram]] = {}
    for row in record["results"]["results"]:
        program = MeasuredProgram(**row | {"ours_is": Ratio(*row["ours_is"])})  # JSON has no named tuples
        if program.name != OURS:
            by_format.setdefault((program.size, program.dtype), []).append(program)
    return [*map(fastest_unbiased, by_format.values())]


def _train_claims(record: Record) -> Iterator[Claim]:
    ours, *others = record["results"]
    for row in others:
        by_samples = _mean_samples(row) / _mean_samples(ours)
        text = f"Speed-up to the demo's target over {row['name']} ({by_samples:.2f} by fewer samples)"
        yield ratio_claim(text, row["times_ours"], str(row["runs"]))


def _mean_samples(row: Record) -> float:
    """Return the mean of a program's samples; beside `mean_samples`, `samples_to_target` is the median."""
    samples: float = row.get("mean_samples", row["samples_to_target"])
    return samples


def _overlap_claims(record: Record) -> Iterator[Claim]:
    """Yield by how much `bucket` exposes less than `before`; the intervals of a record hold jointly at 95 %."""
    for row in record["results"]:
        if row["mode"] == "bucket":
            text = f"Milliseconds that `bucket` exposes less than `before` at {row['bandwidth_mbit']:,.0f} Mbit/s"
            yield Claim(text, f"{row['less_ms']:.1f}", interval(row["less_low_ms"], row["less_high_ms"], ".1f"))


def _update_claims(record: Record) -> Iterator[Claim]:
    found = record["results"]
    text = f"Time of LAMB's update over that of torch's fused AdamW, {found['parameters']:,} parameters"
    yield Claim(text, f"{found['lamb_plain_ms'] / found['adamw_fused_ms']:.2f}")


def _links_claims(record: Record) -> Iterator[Claim]:
    by_link: dict[tuple[float, float], list[Record]] = {}
    for row in record["results"]:
        by_link.setdefault((row["mbit"], row["latency_ms"]), []).append(row)
    for (mbit, latency_ms), rows in by_link.items():
        (plain,) = (row for row in rows if row["way"] == "every_step")
        fastest = min((row for row in rows if row["reached"]), key=lambda row: row["seconds"])
        text = f"Speed-up to the target by `{fastest['way']}`, the fastest of {len(rows)} methods, {mbit:,g} Mbit/s"
        if latency_ms:
            text += f" and {latency_ms:g} ms"
        yield Claim(text, f"{plain['seconds'] / fastest['seconds']:.2f}", seeds="1")


def _exchange_claims(record: Record) -> Iterator[Claim]:
    counted = [row for row in record["results"]["variants"] if row["messages_by_formula"] is not None]
    equal = [
        row
        for row in counted
        if row["messages"] == row["messages_by_formula"] and row["kilobytes"] == row["kilobytes_by_formula"]
    ]
    text = "Ways to combine gradients that send what their formula says"
    yield Claim(text, f"{len(equal)} of {len(counted)}")


def _pipeline_claims(record: Record) -> Iterator[Claim]:
    for row in record["results"]["measured"]:
        if row["schedule"] != "gpipe":
            yield ratio_claim(f"Time of GPipe's step over that of {row['schedule']}, 2 ranks", row["gpipe_is"])


def _squad_claims(record: Record) -> Iterator[Claim]:
    seconds: dict[str, list[float]] = {}
    for row in record["results"]:
        if row["layout"] != BASELINE.name and not row["shares_cores"]:
            seconds.setdefault(row["layout"], []).append(row["of_baseline"]["seconds"])
    for layout, ratios in seconds.items():
        text = f"Seconds of fine-tuning, `{layout}` over one rank"
        yield ratio_claim(text, of_geometric_mean(ratios), str(len(ratios)))


OF_BENCH: dict[str, Callable[[Record], Iterator[Claim]]] = {
    "train": _train_claims,
    "step": _step_claims,
    "optim": _update_claims,
    "overlap": _overlap_claims,
    "exchange": _exchange_claims,
    "links": _links_claims,
    "pipeline": _pipeline_claims,
    "squad": _squad_claims,
}
"""What a record of a bench shows, by the first word of its file's name, in the order of the table."""
