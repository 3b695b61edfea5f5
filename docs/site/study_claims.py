"""Say what the records of studies show, by their numbers: differences and ratios of samples to the target."""

import math
import statistics
from collections.abc import Iterator, Sequence

from bertbench.common.intervals import holm, p_value
from docs.site.claim import LEVEL, Claim, Record, interval

_OPTIMIZERS = {"lamb": "LAMB", "muon": "Muon"}
_ROWS_OF_THEIR_OWN = 2
"""The most differences that aren't significant and still have a row each."""
_STARTS = {"start random": "from random weights", "start checkpoint": "from a checkpoint"}


def study_claims(study: Record) -> Iterator[Claim]:
    """Yield each significant difference; more than two that aren't share a row, by which values both sides have."""
    for pairs in (study["comparisons"], study["at_equal_values"]):
        undecided = [pair for pair in pairs if pair["holm_p"] > LEVEL]
        for pair in pairs:
            if pair not in undecided or len(undecided) <= _ROWS_OF_THEIR_OWN:
                yield _pair_claim(pair)
        if len(undecided) > _ROWS_OF_THEIR_OWN:
            yield _shared_claim(undecided, f"{len(undecided)} of {len(pairs)}")


def _pair_claim(pair: Record) -> Claim:
    difference = pair["difference"]
    values = f", both at the values of `{pair['values_of']}`" if "values_of" in pair else ""
    text = f"Samples of `{difference['arm']}` minus those of `{difference['against']}`{values}"
    mean, low, high = _per_cent(pair)
    ends = interval(low, high, "+.1f", pair["holm_p"] <= LEVEL)
    if pair["missed"]:
        ends += f"; {pair['missed']} more seeds missed the target"
    return Claim(text, f"{mean:+.1f} %", ends, str(pair["seeds"]))


def _shared_claim(pairs: Sequence[Record], counted: str) -> Claim:
    """Return the least and the most of several differences, and the ends of all their intervals."""
    means, lows, highs = zip(*map(_per_cent, pairs), strict=True)
    values = ", both sides at the same values" if "values_of" in pairs[0] else ""
    text = f"Samples, {counted} comparisons{values}: the least and the most difference"
    figure = f"{min(means):+.1f} to {max(means):+.1f} %"
    seeds = ", ".join(dict.fromkeys(str(pair["seeds"]) for pair in pairs))
    return Claim(text, figure, interval(min(lows), max(highs), "+.1f", significant=False), seeds)


def _per_cent(pair: Record) -> tuple[float, float, float]:
    """Return a difference of samples and the ends of its interval, in per cent of the second side's mean."""
    mean, low, high = (100 * pair["difference"][end] / pair["reference"] for end in ("mean", "low", "high"))
    return mean, low, high


def optimizer_claims(study: Record) -> Iterator[Claim]:
    """Yield means over cells, and where in the decay of their rate the runs reached the target."""
    arms = {arm["arm"]: arm for arm in study["arms"]}
    seeds = str(study["arms"][0]["seeds"])
    pairs = {(pair["arm"], pair["cells"]): pair for pair in study["pooled"]}
    chosen = [pairs[arm, cells] for arm in _OPTIMIZERS for cells in _STARTS]
    p_values = holm([_p_value_of(study, pair) for pair in chosen])
    for pair, corrected in zip(chosen, p_values, strict=True):
        missed = pair["verdict"].startswith("not decided")
        over = f"of {_OPTIMIZERS[pair['arm']]} over ADAM's, {_STARTS[pair['cells']]}"
        cells = f"{seeds} x {pair['counted']} cells"
        samples = interval(pair["low"], pair["high"], ".2f", corrected <= LEVEL and not missed)
        yield Claim(f"Samples {over}", f"{pair['samples']:.2f}", samples, cells)
        differs = pair["seconds_low"] > 1 or pair["seconds_high"] < 1
        seconds = interval(pair["seconds_low"], pair["seconds_high"], ".2f", differs and not missed)
        yield Claim(f"Processor seconds {over}", f"{pair['seconds']:.2f}", seconds, cells)
    shares_of_decay = sorted(
        row["samples_to_target"] / arms[row["arm"]]["values"]["decay_samples"]
        for row in study["rows"]
        if row["reached"]
    )
    tenth, *_, last = statistics.quantiles(shares_of_decay, n=10)
    middle = f"{statistics.median(shares_of_decay):.2f}"
    yield Claim(
        "Optimizers: samples to the target over those of the decay, median", middle,
        f"eight of ten runs: {tenth:.2f} to {last:.2f}", seeds,
    )  # fmt: skip


def _p_value_of(study: Record, pair: Record) -> float:
    """Return the p-value of a mean over cells: that their ratios differ from 1 as much by chance (Student's t)."""
    level = pair["cells"].rpartition(" ")[2]
    cells = [
        compared
        for compared in study["comparisons"]
        if compared["kind"] == pair["arm"] and level in compared["difference"]["arm"].split("_")
    ]
    assert len(cells) == pair["counted"], pair
    return p_value([math.log(compared["ratio"]) for compared in cells])
