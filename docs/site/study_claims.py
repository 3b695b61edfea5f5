"""Say what the records of studies show: differences and ratios of samples to the target, with the records' verdicts."""

from collections.abc import Iterator, Sequence

from docs.site.claim import Claim, Record, interval

_OPTIMIZERS = {"lamb": "LAMB", "muon": "Muon"}
_ROWS_OF_THEIR_OWN = 2
"""The most comparisons with one verdict that still have a row each."""
_STARTS = {"start random": "from random weights", "start checkpoint": "from a checkpoint"}


def study_claims(name: str, study: Record) -> Iterator[Claim]:
    """Yield each comparison of a study; more than two with one verdict share a row."""
    for pairs in (study["comparisons"], study["at_equal_values"]):
        by_verdict: dict[str, list[Record]] = {}
        for pair in pairs:
            verdict, *_ = pair["verdict"].split(":")  # without the number of seeds
            by_verdict.setdefault(verdict, []).append(pair)
        for verdict, alike in by_verdict.items():
            if len(alike) > _ROWS_OF_THEIR_OWN:
                yield _shared_claim(alike, verdict, f"{len(alike)} of {len(pairs)} comparisons of `{name}`")
            else:
                yield from map(_pair_claim, alike)


def _pair_claim(pair: Record) -> Claim:
    difference = pair["difference"]
    values = f", both at the values of `{pair['values_of']}`" if "values_of" in pair else ""
    text = f"Samples, `{difference['arm']}` against `{difference['against']}`{values}"
    mean, low, high = _per_cent(pair)
    return Claim(text, f"{mean:+.1f} %", interval(low, high, "+.1f", pair["verdict"]), str(pair["seeds"]))


def _shared_claim(pairs: Sequence[Record], verdict: str, counted: str) -> Claim:
    """Return the least and the most of several differences, and the outer ends of their intervals."""
    means, lows, highs = zip(*map(_per_cent, pairs), strict=True)
    values = ", both sides at the same values" if "values_of" in pairs[0] else ""
    figure = f"{min(means):+.1f} to {max(means):+.1f} %"
    seeds = ", ".join(dict.fromkeys(str(pair["seeds"]) for pair in pairs))
    return Claim(f"Samples, {counted}{values}", figure, interval(min(lows), max(highs), "+.1f", verdict), seeds)


def _per_cent(pair: Record) -> tuple[float, float, float]:
    """Return a difference of samples and the ends of its interval, in per cent of the second side's mean."""
    mean, low, high = (100 * pair["difference"][end] / pair["reference"] for end in ("mean", "low", "high"))
    return mean, low, high


def optimizer_claims(study: Record) -> Iterator[Claim]:
    """Yield the ratios of each optimizer's samples to Adam's, as means over the cells of a start."""
    seeds = study["arms"][0]["seeds"]
    pairs = {(pair["arm"], pair["cells"]): pair for pair in study["pooled"]}
    for optimizer, name in _OPTIMIZERS.items():
        for cells, start in _STARTS.items():
            pair = pairs[optimizer, cells]
            ends = interval(pair["low"], pair["high"], ".2f", pair["verdict"])
            text = f"Samples of {name} over Adam's, {start}"
            yield Claim(text, f"{pair['samples']:.2f}", ends, f"{seeds} x {pair['counted']} cells")
