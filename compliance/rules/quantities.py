"""Rules about quantities that a log states more than once: whatever states one of them agrees with the others.

One table for samples, since time, throughput, steps, blocks and evaluations all give them; one for equal settings.
Tolerances come from published passes: in 738 of 742, throughput x time is the samples within 3 %.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from compliance.description import accelerators
from compliance.finding import Breach, Case, Rule
from compliance.log import Event
from compliance.record import shown
from compliance.rules.samples import TRAINING_STEPS, by_interval, in_samples
from compliance.run import number

_LOGGING = "mlcommons/logging, compliance_checker"
_DATASET = (156e6, 157.5e6)  # some submitters log the size of the dataset, 156,725,653 samples
_NOMINAL = 500  # samples; some submitters log the nominal k x interval, a multiple of it, not the next whole batch
# Settings with two names.
_EQUAL = (
    ("opt_learning_rate_warmup_steps", "num_warmup_steps"), ("opt_epsilon", "opt_lamb_epsilon"),
    (TRAINING_STEPS, "opt_learning_rate_decay_steps"),
)  # fmt: skip


class _Stated(NamedTuple):
    """Samples trained on, as one event gives them; it may be `less` or `more` than the samples that count."""

    line: int
    source: str
    samples: float
    less: float
    more: float


def throughputs(case: Case) -> list[tuple[Event, float]]:
    """Return the samples/s of the whole run that its log gives: events after the last evaluation."""
    last = max((one.line for one in case.facts.evaluations), default=0)
    events = [*case.facts.all("throughput"), *case.facts.all("tracked_stats")]
    values = [(one, one.value.get("throughput") if isinstance(one.value, dict) else one.value) for one in events]
    return [(one, found) for one, value in values if one.line > last and (found := number(value)) is not None]


def _stated(case: Case, batch: float, last: float, gap: float) -> Iterator[_Stated]:
    facts, steps = case.facts, number(case.facts.value(TRAINING_STEPS))
    for event in facts.all("train_samples"):
        trained = number(event.value[0] if isinstance(event.value, list) and len(event.value) == 1 else event.value)
        planned = steps and trained and abs(trained - steps * batch) <= 0.01 * trained
        if trained and not _DATASET[0] <= trained <= _DATASET[1] and not planned:
            yield _Stated(event.line, "train_samples", trained, 0.01 * last, 2 * gap)
    ends = [
        (event, first + count)
        for event in facts.all("block_start")
        if (first := number(event.metadata.get("first_epoch_num"))) is not None
        and (count := number(event.metadata.get("epoch_count"))) is not None
    ]
    if len(ends) > 1 and ends[-1][1] >= batch:
        yield _Stated(ends[-1][0].line, "blocks of samples", ends[-1][1], 0.01 * last + gap, 2 * gap)
    for event in facts.all("epoch_stop")[-1:]:
        if (ended := number(event.metadata.get("epoch_num"))) is not None and ended >= batch:
            yield _Stated(event.line, "epoch_num of epoch_stop", ended, 0.01 * last, 2 * gap)
    for event in facts.all("tracked_stats")[-1:]:
        if isinstance(event.value, dict) and (done := number(event.value.get("epoch_num"))) is not None:
            yield _Stated(event.line, "epoch_num of tracked_stats", done, 0.01 * last, 2 * gap)
        step = event.metadata.get("step")
        if isinstance(step, list) and step and (taken := number(step[-1])) is not None:
            yield _Stated(event.line, "steps x batch", taken * batch, 0.03 * last, 0.03 * last + 2 * gap)
    for event, rate in throughputs(case):
        samples = rate * (facts.time_to_train_s or 0.0)
        yield _Stated(event.line, "throughput x time", samples, 0.03 * last, 0.03 * last + gap / 2)


def disagreements(case: Case) -> list[tuple[int, str, float]]:
    """Return line, source and share of the samples that count, where a log states its samples otherwise."""
    counted, batch = by_interval(case), number(case.facts.global_batch_size)
    if not counted or not batch:
        return []
    samples = [at for _, at in counted]
    last, gap = samples[-1], max(b - a for a, b in pairwise([0.0, *samples]))
    slack = 0.0 if in_samples(case) else 1.5 * gap  # by intervals, the first or the last may be another
    found = _stated(case, batch, last, gap if len(samples) > 1 else 0.0)
    wrong = (one for one in found if not last - one.less - slack <= one.samples <= last + one.more + slack)
    return [(one.line, f"{one.source} {one.samples:,.0f}, last evaluation after {last:,.0f}", one.samples / last)
            for one in wrong]  # fmt: skip


def _samples(case: Case) -> Iterator[Breach]:
    for line, found, _ in disagreements(case):
        yield Breach(line, found)
    counted, batch = in_samples(case), number(case.facts.global_batch_size)
    if not counted:
        if case.closed and case.facts.evaluations:
            case.skip("samples", "epoch_num doesn't count samples; evaluations are taken to be an interval apart")
        return
    # An open run of bertbench may train beyond the horizon of its decay.
    last, at = counted[-1]
    most = number(case.facts.value("bertbench_max_steps")) or number(case.facts.value(TRAINING_STEPS))
    if most and batch and at > 1.02 * most * batch:
        yield Breach(last.line, f"{at:,.0f} samples", f"at most {most:,.0f} steps x batch {batch:,.0f}")
    # Samples grow by the batch, or by its part between two gradient accumulations.
    parts = number(case.facts.value("gradient_accumulation_steps"))
    least = batch / parts if batch and parts is not None and parts >= 1 and batch % parts == 0 else batch or 1.0
    odd = [(one, at) for one, at in counted if at % least]
    gaps = {b - a for a, b in pairwise([0.0, *(at for _, at in counted)])}
    packed = len(odd) == len(counted) and len(gaps) > 1  # packed batches hold varying numbers of samples
    nominal = all(at % _NOMINAL == 0 for _, at in counted)
    if not packed and not nominal and (2 * len(odd) <= len(counted) or len(gaps) == 1):
        for one, at in odd:
            yield Breach(one.line, f"{at:,.0f} samples, no multiple of the batch", f"a multiple of {least:,.0f}")


def _equal(case: Case) -> Iterator[Breach]:
    for one, other in _EQUAL:
        first, second = case.facts.first(one), case.facts.first(other)
        if first and second and first.value != second.value:
            yield Breach(second.line, f"{other} {shown(second.value)}, but {one} {shown(first.value)}")
    yield from _described(case)


def _described(case: Case) -> Iterator[Breach]:
    """Find counts that contradict the description beside the log."""
    platform, nodes = case.facts.first("submission_platform"), case.system.get("number_of_nodes", "")
    stated = re.match(r"(\d{1,6})\s*x\s*\D", str(platform.value)) if platform else None
    if platform and stated and nodes.isdigit() and int(stated[1]) != int(nodes[:20]):
        yield Breach(platform.line, f"submission_platform {shown(platform.value)}", f"{nodes} nodes, as described")
    local, batch, count = case.facts.first("d_batch_size"), number(case.facts.global_batch_size), None
    count = accelerators(case.system)
    if local and batch and count and (share := number(local.value)) and case.closed:
        parts = number(case.facts.value("gradient_accumulation_steps")) or 1.0
        ratio = batch / (share * count)  # packed rows hold up to three samples
        if ratio not in {1.0, 2.0, 3.0, parts, 2 * parts, 3 * parts, 1 / parts}:
            found = f"d_batch_size {shown(local.value)} on {count:,} accelerators"
            yield Breach(local.line, found, f"a global batch of {batch:,.0f}")


def _train_samples(case: Case) -> Iterator[Breach]:
    for event in case.facts.all("train_samples"):
        values = event.value if isinstance(event.value, list) and event.value else [event.value]
        if any((value := number(one)) is None or value <= 0 for one in values):
            yield Breach(event.line, f"train_samples {shown(event.value)}", "a positive number")


RULES = (
    Rule(
        "train-samples", "train_samples is a positive number", "mlcommons/logging, rcp_checker", "warning",
        "log the samples trained on", _train_samples,
    ),
    Rule(
        "samples", "Evaluations, blocks, steps x batch, throughput x time and train_samples give the same samples",
        "mlcommons/logging, rcp_checker", "warning",
        "check what is counted as samples, and the batch that is logged", _samples,
    ),
    Rule(
        "stated-twice", "Settings and counts that are stated twice agree, in the description too", _LOGGING, "warning",
        "log the value that was used, under each of its names", _equal,
    ),
)  # fmt: skip
