"""Rules about pace: no part of a run is faster than possible."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from compliance import hardware
from compliance.finding import Breach, Breaches, Case, Rule
from compliance.log import Event
from compliance.rules.quantities import THROUGHPUT, disagreements, kind_of, measured
from compliance.rules.samples import FEWEST_SAMPLES, by_interval, reaching, reference_samples
from compliance.run import numeric

_CLOCK = "training_rules.adoc: run results"
_FEWEST_INTERVALS = 3  # for a median
# A published run's intervals took 0.35 s at first and 0.2 s in the end: lines may be written that late.
_LEAST_CUT_MS = 200.0
_LEAST_CUT, _LEAST_SAVED = 0.06, 0.05  # of an interval, and of a run: published runs lack 3 %
_FEWEST_SIDE = 5  # intervals of each half
_LEAST_FASTER = 0.13  # of the pace; ten of 64 published runs become faster by 5 to 8 %
_DEVIATIONS, _AS_DEVIATION = 6.0, 1.4826  # of the run's own intervals; the median of deviations as a standard one
_AT_ONCE = 0.01  # of the first interval: the others, where evaluations are logged after the last
_EVEN = 5e-5  # of an interval: what all differ by at least
_LONG_MS = 20_000.0  # a pass of 64 nodes has five equal intervals of 1,212 ms; long intervals vary by more
# One to four digits again and again; 0 and 9 come from arithmetic in binary.
_REPEATING = re.compile(r"([1-8])\1{7}|(?!(\d)\2{3})(?:(\d\d)\3{4}|(\d)(\d\d)(\4\5){2}\4|(\d{4})\7{2})|123456789")
# Masked tokens of the 10,000 held-out samples: published accuracies are whole parts of it, as doubles or floats.
_PREDICTIONS, _ROUNDED = 428_235, 0.025
_LEAST_EVALUATED = 1_000  # samples of training: 10,000 of evaluation take a third of theirs, published ones a fifth
_LEAST_SPAN_MS = 1_000.0  # shorter evaluations take equal milliseconds by chance
_REGULAR_MS, _FEWEST_REGULAR = 5_000.0, 5  # shorter intervals repeat by chance
# Rate x time / samples is the same in the intervals of 31 published logs, and in the run.
_STEADY = 0.005
_LONG = 9  # characters of a figure that isn't rounded: they don't repeat by chance
_NOISE = 2e-4  # in fourth differences of accuracies; published runs have 5e-4 and more, rounding to five digits 4e-5
_SAME = 4  # this many evaluations of 10,000 samples never agree to the last digit
_FINE = 6  # decimals: accuracies with fewer can agree by chance
_PLATEAU = 0.7
_FALL = 0.1  # of accuracy, between two evaluations; the largest of 176 published runs is 0.027
_COARSE = 3  # decimals, of all accuracies; published ones have five or more


class _Interval(NamedTuple):
    """The time between two evaluations, or from run_start to the first; at the run's median pace, `expected_ms`."""

    line: int
    took_ms: float
    expected_ms: float


def _cut(case: Case) -> Breaches:
    intervals = _intervals(case)
    if not intervals:
        case.skip("pace", f"fewer than {_FEWEST_INTERVALS + 1} timed evaluations, or all are logged at once")
    elif short := list(_short(intervals)):
        # Alone, an odd pace may be a late line; with samples that its own throughput doesn't give, it is a cut.
        contradicted = any(share < 1 and THROUGHPUT in found for _, found, share in disagreements(case))
        for line, found in short:
            yield Breach(line, found, None, "error" if case.closed and contradicted else "warning")


def _short(intervals: Sequence[_Interval]) -> Iterator[tuple[int, str]]:
    """Keep a balance: an interval may be short by what those before took beyond the pace, as after a late start."""
    spread = _AS_DEVIATION * median(abs(one.took_ms - one.expected_ms) for one in intervals[1:])
    balance = saved = late = 0.0
    for one in intervals:
        beyond = one.took_ms - one.expected_ms
        usual = max(_LEAST_CUT_MS, _LEAST_CUT * one.expected_ms, min(_DEVIATIONS * spread, one.expected_ms / 3))
        balance = balance + beyond if abs(beyond) > usual else 0.0  # at the run's pace, no late line is left to pay for
        late += beyond if beyond > usual else 0.0
        saved -= beyond if -usual <= beyond < 0 else 0.0
        if -balance > usual:
            found = f"{one.took_ms / 1e3:.3f} s up to this evaluation, where the run's pace takes"
            yield one.line, f"{found} {one.expected_ms / 1e3:.3f} s"
        balance = max(0.0, balance)
    # the shorter ones of a pod may get faster by themselves
    later = [one.took_ms / one.expected_ms for one in intervals[1:] if one.expected_ms >= _REGULAR_MS]
    half = len(later) // 2
    if half >= _FEWEST_SIDE:
        faster = median(later[:half]) - median(later[half:])
        if faster > max(_LEAST_FASTER, 3 * median(abs(b - a) for a, b in pairwise(later))):
            yield intervals[-1].line, f"later intervals faster than the first, by {faster:.0%}"
    total = sum(one.took_ms for one in intervals)
    if saved > max(_LEAST_CUT_MS, _LEAST_SAVED * total, spread * len(intervals)) + late:
        found = f"{saved / 1e3:.3f} s of {total / 1e3:.3f} s missing in intervals faster than the run's pace"
        yield intervals[-1].line, found


def _even(case: Case) -> Breaches:
    """Find times and accuracies that no measurement gives: a clock and a held-out set have noise."""
    evaluations = case.evaluations
    last = evaluations[-1].line if evaluations else None
    took = [round(one.took_ms, 3) for one in _intervals(case)[1:]]
    times, often = Counter(took).most_common(1)[0] if took else (0.0, 0)
    even = len(took) > 2 and max(took) - min(took) <= _EVEN * times
    many = 2 if times > _LONG_MS else _FEWEST_REGULAR
    again = often > many or 2 * len(set(took)) - 1 <= len(took) > _FEWEST_REGULAR or _smooth(took, 1.0)
    if even or (again and times > _REGULAR_MS and case.is_fine):
        found = f"intervals by a formula, or equal to the millisecond: {often} of {times / 1e3:.3f} s"
        yield Breach(last, found, "intervals that differ")
    trained = max((at for _, at in by_interval(case)), default=math.inf)
    least = 1e3 * _LEAST_EVALUATED * (case.time_to_train_s or 0.0) / trained
    for kind in ("block", "eval"):
        starts, stops = (case.all(f"{kind}_{end}") for end in ("start", "stop"))
        spans = [round(stop.time_ms - start.time_ms, 3) for start, stop in zip(starts, stops, strict=False)]
        if case.is_fine and len(spans) > _FEWEST_REGULAR and len(set(spans)) == 1 and spans[0] >= _LEAST_SPAN_MS:
            yield Breach(stops[-1].line, f"{kind}s of {spans[0]:,} ms each", "times that differ")
        if kind == "eval" and spans and case.closed and 0 < median(spans) < least:
            yield Breach(stops[-1].line, f"evaluations of {median(spans):,.0f} ms", f"at least {least:,.0f} ms")
    yield from _repeated(case, last)
    yield from _accuracies(case, last)


def _repeated(case: Case, last: int | None) -> Breaches:
    # by second, as ranks may log one at once
    figures: dict[str, dict[tuple[float, float], Event]] = defaultdict(dict)
    for event in case.log.events:
        for kind, name, value in measured(event):
            if kind in ("rate", "loss", "step_time") and (figure := numeric(value)):
                figures[name][event.time_ms // 1e3, figure] = event
    for name, values in figures.items():
        row = [figure for _, figure in values]
        usual, often = Counter(row).most_common(1)[0]
        if often > _FEWEST_REGULAR and 3 * often > len(row) and len(repr(usual)) > _LONG:
            yield Breach(last, f"{name} {usual!r} {often} times")
        if kind_of(name) == "rate" and 0 <= len(row) - len(case.evaluations) < 2:
            yield from _against_time(case, name, values)
        rises = median(row[-_FEWEST_SIDE:]) >= median(row[:_FEWEST_SIDE])
        if rises and len(row) > _FEWEST_REGULAR and re.match("(?i)(?!eval).*loss", name) and reaching(case):
            yield Breach(last, f"{name} {row[-1]!r} after {row[0]!r}", "a loss that falls")


def _against_time(case: Case, name: str, figures: dict[tuple[float, float], Event]) -> Breaches:
    """Find rates that fit their interval's time and samples otherwise than the others do; all may leave evaluation out.

    An interval ends with its rate; after those of all intervals, one may be the run's.
    """
    events = [*figures.values()]
    intervals = _intervals(case, events)
    intervals.append(
        _Interval(events[-1].line, 1e3 * (case.time_to_train_s or math.nan), sum(one.expected_ms for one in intervals))
    )
    shares = [
        (one.line, rate * one.took_ms / (one.expected_ms or 1.0))
        for (_, rate), one in zip(figures, intervals, strict=False)
    ][1:]  # the first has the start's time
    usual = median([share for _, share in shares] or [0.0])
    # a clock of seconds is too coarse
    for line, share in shares if case.is_fine else ():
        if abs(share - usual) > _STEADY * usual > 0:
            yield Breach(line, f"{name} x time is {share / usual:.3f} of the samples, elsewhere 1.000")


def _accuracies(case: Case, last: int | None) -> Breaches:
    counted = len({one.samples for one in case.evaluations}) > 1
    different = list({
        (one.accuracy, one.samples if counted else one.time_ms // 1e3): one  # several ranks may log one
        for one in case.evaluations if 0 <= one.accuracy < 1
    }.values())  # fmt: skip
    accuracies = [one.accuracy for one in different]
    fine = sorted(one for one in accuracies if round(one, _FINE) != one)
    twice = [one for one, other in pairwise(fine) if one == other]
    tails = {round(one * 1e3 % 1, _FINE) for one in fine}
    rises = [round(b - a, 9) for a, b in pairwise(accuracies)]
    parts = [one * _PREDICTIONS for one in accuracies]
    whole = [abs(part - round(part)) < _ROUNDED for part in parts]
    by_number = case.closed and 2 * sum(whole) > len(whole) > 3  # others average over batches
    expected = f"the digits of a measurement: a whole number of {_PREDICTIONS:,} predictions"
    for one, is_whole in zip(different, whole, strict=True):
        found = f"accuracy {one.accuracy!r}"
        if _REPEATING.search(found) or (by_number and not is_whole):
            yield Breach(one.line, found, expected)
    # Of 10,000 samples, two accuracies near the target agree by chance in some of a hundred runs.
    chance = len(twice) < 2 and min(twice, default=_PLATEAU) >= _PLATEAU and len(tails) >= len(fine) - 1
    formula = 2 * sum(round(one, _FINE - 2) != one for one in accuracies) > len(rises) and _smooth(accuracies, _NOISE)
    some = rises[len(rises) // 2 :] if fine else rises  # rounded ones rise alike near the target
    often = max(Counter(accuracies).values(), default=0)
    coarse = all(round(one, _COARSE) == one for one in accuracies)  # as those of a small open set may be
    typed = case.closed and rises and (coarse or min(rises) < -_FALL)
    if not chance or formula or typed or 2 * len(set(some)) < len(some) or often >= _SAME:
        found = "accuracies with the same digits, or the same rise"
        yield Breach(last, found, "accuracies that vary", "error" if case.closed and often >= _SAME else None)


def _smooth(values: Sequence[float], noise: float) -> bool:
    """Return whether a formula made the later values: fourth to sixth differences of a curve leave the noise alone."""
    for order in range(6):
        values = [b - a for a, b in pairwise(values)]
        later = sorted(map(abs, values[len(values) // 2 :]))
        if order > 2 and len(later) >= _FEWEST_REGULAR and later[-2] < noise:  # the target's value may be of none
            return True
    return False


def _intervals(case: Case, ends: Sequence[Event] = ()) -> list[_Interval]:
    """Return the intervals between evaluations, or between the events of `ends`, one for each evaluation."""
    start = case.first("run_start")
    evaluations = [one for one in case.evaluations if math.isfinite(one.time_ms)]
    if start is None or not math.isfinite(start.time_ms) or len(evaluations) <= _FEWEST_INTERVALS:
        return []
    at = [one.samples for one in evaluations]
    if None in at or len(set(at)) == 1:  # counted by number
        at = [float(index + 1) for index in range(len(at))]
    counts = [0.0, *(count for count in at if count is not None)]
    times = [start.time_ms, *(one.time_ms for one in ends or evaluations)]
    amounts = [max(0.0, b - a) for a, b in pairwise(counts)]
    took = [b - a for a, b in pairwise(times)]
    paces = [time / amount for time, amount in list(zip(took, amounts, strict=False))[1:] if amount > 0 and time > 0]
    if len(paces) < _FEWEST_INTERVALS or sorted(took)[-2] < _AT_ONCE * took[0]:
        return []
    pace = median(paces)
    return [
        _Interval(evaluation.line, time, amount * pace)
        for evaluation, time, amount in zip(evaluations, took, amounts, strict=False)
    ]


def _rate(case: Case) -> Breaches:
    """Find closed runs that are too fast; the arithmetic of an open run is unknown."""
    seconds, stop, batch = case.time_to_train_s or 0.0, case.first("run_stop"), case.batch
    if not case.closed or seconds <= 0 or batch is None or stop is None:
        return
    counted = by_interval(case)
    reference = reference_samples(case.ruleset, batch) if case.status == "success" else None
    # A log that counts otherwise may also have left evaluations out.
    samples = max(counted[-1][1] if counted else 0.0, FEWEST_SAMPLES * (reference or 0.0))
    basis = "by its samples, or the least that converge, and the time from run_start to run_stop"
    rate = samples / seconds
    if rate / batch > hardware.FASTEST_STEPS_A_SECOND:
        most = f"at most {hardware.FASTEST_STEPS_A_SECOND:,.0f} steps/s"
        yield Breach(stop.line, f"{rate / batch:,.0f} steps/s, {basis}", most)
    bound = hardware.fastest(case.system)
    if bound is None:
        case.skip("rate", "no description beside the log gives nodes and accelerators; only steps/s are bounded")
    elif rate > bound[0]:
        yield Breach(stop.line, f"{rate:,.0f} samples/s, {basis}", f"at most {bound[0]:,.0f} samples/s: {bound[1]}")


RULES = (
    Rule(
        "pace", "Intervals keep the run's pace, or earlier ones took longer (with a contradicting throughput: error)",
        _CLOCK, "warning",
        "check the clock of the host; log every event when it happens", _cut,
    ),
    Rule(
        "noise", "Intervals and accuracies vary as measurements do, rates as time does (four equal accuracies: error)",
        _CLOCK, "warning",
        "log what was measured", _even,
    ),
    Rule(
        "rate", "A closed run is no faster than its hardware", _CLOCK, "error",
        "check the unit of time_ms, and the description of the system", _rate,
    ),
)  # fmt: skip
