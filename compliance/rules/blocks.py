"""Rules about what happens within a run: blocks of training and evaluations start, stop, and follow each other."""

import math
from itertools import pairwise

from compliance.finding import Breach, Breaches, Case, Rule
from compliance.rules.clock import SKEW_MS
from compliance.run import number

_WIDE = 0.1  # of a block; nominal counts differ from whole batches by less
_LOGGING = "mlcommons/logging, compliance_checker"
_IN_TURN = (
    ("block_start", "block_stop"), ("epoch_start", "epoch_stop"), ("eval_start", "eval_stop"),
    ("eval_start", "eval_accuracy"),
)  # fmt: skip


def _intervals(case: Case) -> Breaches:
    for first, then in _IN_TURN:
        starts, stops = case.all(first), case.all(then)
        last = max((stop.line for stop in stops), default=0)  # the target may end those that start later
        row = sorted((*(start for start in starts if start.line < last), *stops), key=lambda event: event.line)
        lost = [one if one.key == first else other for one, other in pairwise(row) if one.key == other.key]
        if 6 * len(lost) > len(starts):  # another logger's blocks hold several evaluations, or begin again
            if starts and stops:
                case.skip("intervals", f"{first} and {then} don't take turns")
            continue
        for event in lost:
            yield Breach(event.line, f"{event.key} without {then if event.key == first else first}")
        for before, after in pairwise(row):
            if (early := before.time_ms - after.time_ms) > SKEW_MS:
                yield Breach(after.line, f"{after.key} {early / 1e3:.1f} s before {before.key} on line {before.line}")
        took = [stop.time_ms - start.time_ms for start, stop in zip(starts, stops, strict=False)]
        if then == "eval_stop" and took and max(took) <= 0:
            yield Breach(stops[0].line, "evaluations that take no time, or less")
    ends = case.all("block_stop")  # of fewer blocks than evaluations, each holds several
    for one, end in zip(case.evaluations, ends, strict=False):
        if one.time_ms < end.time_ms - SKEW_MS and len(ends) >= len(case.evaluations):
            yield Breach(one.line, f"an accuracy {(end.time_ms - one.time_ms) / 1e3:.1f} s before its block ends")


def _contiguous(case: Case) -> Breaches:
    batch = case.batch or math.inf
    blocks = [
        (event, first, count)
        for event in case.all("block_start")
        if (first := number(event.metadata.get("first_epoch_num"))) is not None
        and (count := number(event.metadata.get("epoch_count"))) is not None
    ]
    gaps = [
        (event, first, previous + count, count)
        for (_, previous, count), (event, first, _) in pairwise(blocks)
        if first != previous + count
    ]
    # Logs that count otherwise than in samples have gaps throughout; a sound one of ours has none.
    wide = all(first >= batch <= count and first - due > _WIDE * count for _, first, due, count in gaps)
    if (len(gaps) > 1 and wide) or 0 < 3 * len(gaps) <= len(blocks) - 1:
        for event, first, due, _ in gaps:
            yield Breach(event.line, f"a block from {first:,.0f}", f"a block from {due:,.0f}, the previous end")


RULES = (
    Rule(
        "intervals",
        "Blocks, epochs and evaluations start and stop; evaluations take time, and log an accuracy after their block",
        _LOGGING, "warning", "check whether lines were lost", _intervals,
    ),
    Rule(
        "blocks-contiguous", "A block starts where the previous one ended", _LOGGING, "warning",
        "check whether lines were lost", _contiguous,
    ),
)  # fmt: skip
