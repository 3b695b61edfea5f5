"""Rules about what happens within a run: blocks of training and evaluations start, stop, and follow each other."""

import math
from itertools import pairwise

from compliance.finding import Breach, Breaches, Case, Rule
from compliance.log import Event
from compliance.record import shown
from compliance.rules.clock import SKEW_MS
from compliance.run import number

_WIDE = 0.1  # of a block; nominal counts differ from whole batches by less
_LOGGING = "mlcommons/logging, compliance_checker"


def _intervals(case: Case) -> Breaches:
    for kind in ("block", "epoch", "eval"):
        starts, stops = case.all(f"{kind}_start"), case.all(f"{kind}_stop")
        starts = _by_their_ends(starts, stops)
        began = {_name(event): event.time_ms for event in starts}
        names = began.keys() & {_name(event) for event in stops}
        if len(names) < 2 or 2 * len(names) < max(len(starts), len(stops)):
            if min(len(starts), len(stops)) > 1:
                case.skip("intervals", f"starts and stops of {kind}s are counted differently")
            continue
        for events, other in ((starts[:-1], "stop"), (stops, "start")):  # the target may end the last one
            for event in events:
                if _name(event) not in names:
                    yield Breach(event.line, f"{event.key} of {shown(_name(event))} without a {other}")
        for event in stops:
            early = began.get(_name(event), event.time_ms) - event.time_ms
            if early > SKEW_MS:
                yield Breach(event.line, f"{event.key} {early / 1e3:.1f} s before its start")
        yield from _without_accuracy(case, names) if kind == "eval" else ()
    ends = case.all("block_stop")  # of fewer blocks than evaluations, each holds several
    for one, end in zip(case.evaluations, ends, strict=False):
        if one.time_ms < end.time_ms - SKEW_MS and len(ends) >= len(case.evaluations):
            yield Breach(one.line, f"an accuracy {(end.time_ms - one.time_ms) / 1e3:.1f} s before its block ends")


def _by_their_ends(starts: list[Event], stops: list[Event]) -> list[Event]:
    """Return the starts under the names of their stops, where these carry the count at which the interval ends."""
    stopped = {_name(event) for event in stops}
    ends = [
        event._replace(metadata={"first_epoch_num": _name(event) + count})
        for event in starts
        if (count := number(event.metadata.get("epoch_count"))) is not None
    ]
    return max(starts, ends, key=lambda events: len(stopped & {_name(event) for event in events}))


def _without_accuracy(case: Case, names: set[float]) -> Breaches:
    measured = {_name(event) for event in case.all("eval_accuracy")}
    if 2 * len(measured & names) < len(names):
        return
    for event in case.all("eval_stop"):
        if _name(event) in names - measured:
            yield Breach(event.line, f"an evaluation at {shown(_name(event))} without eval_accuracy")


def _name(event: Event) -> float:
    metadata = event.metadata
    for field in ("first_epoch_num", "epoch_num", "samples_count", "step_num"):
        if field in metadata and (value := number(metadata[field])) is not None:
            return value
    return math.nan  # equal to nothing


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
        "intervals", "Blocks, epochs and evaluations start and stop; evaluations log an accuracy, after their block",
        _LOGGING, "warning", "check whether lines were lost", _intervals,
    ),
    Rule(
        "blocks-contiguous", "A block starts where the previous one ended", _LOGGING, "warning",
        "check whether lines were lost", _contiguous,
    ),
)  # fmt: skip
