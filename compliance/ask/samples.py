"""Ask about counts of training samples that disagree: those under mlperf-logging's keys and in tracked_stats."""

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import harmonic_mean

from compliance.ask.question import Question, Topic
from compliance.read.case import TRAINING_STEPS, Case
from compliance.read.record import shown
from compliance.read.run import alone, number, numeric

SAMPLES = Topic(
    "samples", "Do all counts of training samples in the log agree?",
    "train_samples is within 3 % of the last evaluation's epoch_num, or up to one interval more; throughput x time is "
    "within 5 % of it",
)  # fmt: skip
_SHARE = 0.03
_DATASET = (156e6, 157.5e6)
"""Some submitters log the size of the dataset as train_samples: 156,725,653."""
_RATE_SHARE = 0.05


def ask(case: Case) -> Iterator[Question]:
    """Ask about counts that disagree."""
    counted = case.in_samples()
    if counted and case.batch:
        samples = [count for _, count in counted]
        longest = max(after - before for before, after in pairwise([0.0, *samples]))
        yield from _train_samples(case, case.batch, samples[-1], longest)
        yield from _throughput(case, samples[-1])
        yield from _starts(case, case.batch)


def _train_samples(case: Case, batch: float, trained: float, longest: float) -> Iterator[Question]:
    accumulation = case.number("gradient_accumulation_steps") or 1.0
    steps = case.number(TRAINING_STEPS) or 0.0
    planned = batch * steps
    for event in case.all("train_samples"):
        stated = numeric(alone(event.value)) or 0.0
        is_planned = any(abs(stated - samples) <= 0.01 * stated for samples in (planned, planned / accumulation))
        is_dataset = _DATASET[0] <= stated <= _DATASET[1]
        agrees = (1 - _SHARE) * trained <= stated <= (1 + _SHARE) * trained + longest
        if not (agrees or is_planned or is_dataset):
            figure = f"train_samples {shown(event.value)}, but the last evaluation comes after {trained:,.0f} samples"
            yield SAMPLES.question(figure, event.line)


def _throughput(case: Case, trained: float) -> Iterator[Question]:
    """Compare the training samples with the throughputs in tracked_stats: their harmonic mean, times the time to train.

    A throughput may leave out the time of evaluations.
    """
    seconds = case.time_to_train_s or 0.0
    start = case.first("run_start")
    events = [
        event for event in case.all("tracked_stats")
        if isinstance(event.value, dict) and "throughput" in event.value and start and event.line > start.line
    ]  # fmt: skip
    rates = [number(event.value["throughput"]) for event in events]
    positive = [rate for rate in rates if rate and rate > 0]
    if seconds <= 0 or not positive or len(positive) < len(rates):
        return
    if 2 * len(positive) < len(case.evaluations):
        return  # too few: there isn't one for each interval
    by_throughput = harmonic_mean(positive) * seconds
    stated = by_throughput * _accelerators_counted(case, by_throughput, trained)
    most = (1 + _RATE_SHARE) * trained / max(0.5, 1 - _evaluation_s(case) / seconds)
    if not (1 - _RATE_SHARE) * trained <= stated <= most:
        figure = f"throughput x time gives {stated:,.0f} samples, but the last evaluation has {trained:,.0f}"
        yield SAMPLES.question(figure, events[-1].line)


def _evaluation_s(case: Case) -> float:
    """Return the seconds that all evaluations take together; 0 unless each has a start and a stop."""
    starts = [event.time_ms for event in case.all("eval_start")]
    stops = [event.time_ms for event in case.all("eval_stop")]
    if len(starts) != len(stops):
        return 0.0
    return max(0.0, sum(stops) - sum(starts)) / 1e3


def _accelerators_counted(case: Case, samples: float, trained: float) -> float:
    """Return the factor from a logged throughput to the throughput of the whole system.

    It is 1, the number of accelerators, or half of that number if samples are packed: whichever brings `samples`, the
    count without the factor, closest to `trained`.
    """
    accumulation = case.number("gradient_accumulation_steps") or 1.0
    local_batch = case.number("d_batch_size") or math.inf
    accelerators = (case.batch or 0.0) / accumulation / local_batch
    factors = (1.0, max(1.0, accelerators), max(1.0, accelerators / 2))
    return min(factors, key=lambda factor: abs(factor * samples - trained))


def _starts(case: Case, batch: float) -> Iterator[Question]:
    """Compare the epoch_num of eval_start and of eval_accuracy, if both count samples."""
    starts = case.all("eval_start")
    accuracies = case.all("eval_accuracy")
    if len(starts) != len(accuracies):
        return
    for start, accuracy in zip(starts, accuracies, strict=True):
        began = number(start.metadata.get("epoch_num")) or 0.0
        ended = number(accuracy.metadata.get("epoch_num")) or 0.0
        if min(began, ended) >= batch and abs(began - ended) > batch:
            figure = f"eval_accuracy has epoch_num {ended:,.0f}, but its eval_start has {began:,.0f}"
            yield SAMPLES.question(figure, accuracy.line)
            return
