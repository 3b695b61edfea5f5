"""Rules about quantities that a log states more than once: whatever states one of them agrees with the others.

One table for samples, since time, throughput, steps, blocks and evaluations all give them; settings by any name.
Tolerances come from published passes: in 738 of 742, throughput x time is the samples within 3 %.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from statistics import harmonic_mean, median
from typing import Any, NamedTuple

from compliance.description import in_all
from compliance.finding import Breach, Breaches, Case, Rule
from compliance.log import Event
from compliance.record import shown
from compliance.rules.hyperparameters import NUMBERS
from compliance.rules.samples import TRAINING_STEPS, by_interval, in_samples
from compliance.run import alone, number, numeric

_LOGGING = "mlcommons/logging, compliance_checker"
_DATASET = (156e6, 157.5e6)  # some submitters log the size of the dataset, 156,725,653 samples
THROUGHPUT = "throughput x time"
# What settings' names are spelled with and without: those that are alike without it name one setting.
_AFFIXES = re.compile(r"^(opt|num)_|base_|lamb_|learning_rate_(?=\w+_steps)|(training|decay)_(?=steps$)|_rate$|\W|_")
_SETTINGS = {_AFFIXES.sub("", key) for key in ("global_batch_size", *NUMBERS)}
_LIMITS = ("max_steps", "total_steps", "num_train_steps")
_IN_ALL = ("num_accelerators", "num_gpus")  # what all nodes have together
# How loggers name what they measure; `data`: a file that was opened.
_KINDS = re.compile(
    "(?P<rate>((train|training|average|avg|mean|throughput)_)*"
    "(throughputs?|tput|(samples|seqs?|sequences|examples|items)_(per_|p)?s(ec(ond)?)?)(_(average|avg|mean))?"
    "|tracked_stats)"
    "|(?P<seconds>(time_to_(train|converge|solution|target)|ttt|run_duration|((raw_)?(train|training)|run)_time)"
    "(_ms|_s|_seconds|_minutes|_hours)?|(train|training)_(seconds|minutes|hours)|(seconds|time)_since_run_start)"
    "|(?P<elapsed>((elapsed|wall_clock)(_time)?|total_time|duration|runtime)(_ms|_s|_seconds|_minutes)?"
    "|total_(seconds|minutes))"
    "|(?P<step_time>((train|training|avg|average|mean)_)*(step|iteration)_time(_ms|_s|_seconds)?"
    "|(ms|milliseconds|s|sec|seconds)_per_(step|iteration))"
    "|(?P<steps>((global|train|training|final|last)_)?(steps?|step_num|iterations?|iters?)"
    "|(num_)?(steps|iterations|iters)_(done|completed|taken))"
    "|(?P<samples>epoch_num|samples|samples_(count|seen|trained|processed|consumed))"
    "|(?P<lr>((current|final|last|train)_)?(lr|learning_rate))"
    "|(?P<accuracy>run_stop|(final|best)_accuracy|(final_|best_)?eval_((mlm|masked_lm)_)?accuracy)"
    "|(?P<loss>((train|training|eval|final|mean|mlm|nsp|masked_lm)_)*loss(es)?(_mlm|_nsp)?"
    "|grad(ient)?_norm|samples_skipped)"
    "|(?P<data>((train|training)_)?(data(set)?|shard|batch)_(file|loaded|cached|read)|first_batch(_loaded|_read)?)"
)
_ONE_STEP = ("step", "iteration", "train")  # without "average", the time of one step; it may be a slow one
_UNITS = (1.0, 60.0, 3_600.0, 1e-3)  # seconds
_LEAST_SAME, _MOST_SAME, _TRAINING_ALONE = 0.25, 10.0, 0.5  # of the run; other times are of something else
_ALIKE = 5e-4  # accuracies, in three digits
_LONGEST_HORIZON = 10  # times the samples trained on
_OTHERWISE = 4  # counts that differ by as many times count something else


class _Stated(NamedTuple):
    """Samples trained on, as one event gives them; None if in words. `share` of a difference is allowed.

    `surplus` may be beyond: an interval, as some implementations train on until they know the accuracy.
    """

    event: Event
    source: str
    samples: float | None
    share: float = 0.01
    surplus: float | None = None


@lru_cache(maxsize=1024)
def kind_of(name: str) -> str | None:
    """Return what a name measures: a group of `_KINDS`."""
    found = _KINDS.fullmatch(re.sub(r"\W+", "_", name.strip().lower()))
    return found and found.lastgroup


def measured(event: Event) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, name and value of what an event measures: by its key, in its value, and in its metadata."""
    pending: list[tuple[str, Any]] = [(event.key, event.value), *event.metadata.items()]
    for name, value in pending:  # it grows
        if isinstance(value, dict):
            pending += value.items()
        elif isinstance(value, list):
            pending += [(name, one) for one in value[-1:]]
        elif value is not None and (kind := kind_of(name)):
            yield kind, name, value


def _in_the_end(case: Case) -> Iterator[tuple[Event, str, str, Any]]:
    """Yield what is measured over the whole run: after the last evaluation, with it, or as the last of its name.

    Steps are also yielded as the last before it, which are no more than those of the run.
    """
    last = max((one.line for one in case.evaluations), default=0)
    start = case.first("run_start")
    rates: dict[str, list[tuple[Event, str, str, Any]]] = defaultdict(list)
    steps: dict[str, tuple[Event, str, str, Any]] = {}
    for event in case.log.events:
        for kind, name, value in measured(event) if start and event.line > start.line else ():
            if kind in ("rate", "step_time"):
                rates[event.key + name].append((event, kind, name, value))
            elif event.line >= last or event.key == "run_stop":
                yield event, kind, name, value
            elif kind in ("steps", "lr"):
                steps[name] = event, kind, name, value
    yield from steps.values()
    for stated in rates.values():
        name = stated[0][2]
        each = [max(0.0, numeric(value) or 0.0) for *_, value in stated]
        before = sum(event.line <= last for event, *_ in stated)
        if 2 * len(each) >= len(case.evaluations):  # one for each interval, and perhaps of the run
            yield *stated[-1][:3], harmonic_mean(each)
        elif stated[-1][1] == "rate" or not name.lower().startswith(_ONE_STEP):
            yield from stated[before:] or stated[-1:]


def _stated(case: Case, batch: float, samples: Sequence[float]) -> Iterator[_Stated]:
    last, gap = samples[-1], median(b - a for a, b in pairwise([0.0, *samples]))
    seconds = case.time_to_train_s or 0.0
    starts, stops = ([event.time_ms for event in case.all(key)] for key in ("eval_start", "eval_stop"))
    paired = len(starts) == len(stops)
    evaluating = min(seconds, max(0.0, sum(stops) - sum(starts)) / 1e3) if paired else 0.0  # a rate may leave it out
    parts = case.number("gradient_accumulation_steps") or 1.0
    planned = batch * (case.number(TRAINING_STEPS) or 0.0)
    each = batch / parts / (case.number("d_batch_size") or batch)
    ranks = [1.0, *(count for count in (each, each / 2) if count >= 4)]
    for event in case.all("train_samples"):
        trained = numeric(alone(event.value)) or 0.0
        as_planned = any(abs(trained - planned / part) <= 0.01 * trained for part in (1.0, parts))
        if not (_DATASET[0] <= trained <= _DATASET[1] or as_planned):
            yield _Stated(event, "train_samples", trained, surplus=0.03 * trained)  # published ones differ by 0.001
    blocks = case.all("block_start")
    if len(blocks) > 2:
        ended = last / gap * median(number(event.metadata.get("epoch_count")) or 0.0 for event in blocks)
        for done in filter(partial(_comparable, last), (ended, ended * batch)):  # of samples, or of steps
            yield _Stated(blocks[0], "blocks", done, 0.03, 0.0)
    for event, kind, name, value in _in_the_end(case):
        found = numeric(value)
        if kind == "rate":
            # some loggers give it for one accelerator; packed rows hold two samples
            count = min(ranks, key=lambda count: abs((found or 0.0) * seconds * count - last))
            rate = (found or math.nan) * count
            yield _Stated(event, THROUGHPUT, rate * seconds, 0.03, rate * evaluating)
        elif kind == "step_time" and found and parts == 1:
            for done in (batch * seconds / found / unit for unit in _UNITS):
                if _comparable(last, done):
                    yield _Stated(event, f"time by {name}", done, 0.03, done * (0.1 + evaluating / seconds))
        elif kind in ("steps", "samples") and found:
            done = found * (batch if kind == "steps" else 1.0)
            if kind == "steps":  # some loggers count the parts of a batch
                done = min(done, done / parts, key=lambda one: abs(one - last))
            lines = [one.line for one in case.evaluations]
            ended = event.line >= lines[-1] or (parts == 1 and done > last)
            late = parts == 1 and event.line > lines[-2:][0]  # an interval before the end, or two
            if done >= batch and (ended or late) and _comparable(last, done):
                share = 0.03 if ended else 0.03 + 2.5 / len(lines)
                yield _Stated(event, f"{name} of {event.key}", done, share, 0.0 if kind == "samples" else None)


def _comparable(last: float, samples: float) -> bool:
    return 1 / _OTHERWISE < samples / last < _OTHERWISE


def disagreements(case: Case) -> list[tuple[int, str, float]]:
    """Return line, source and share of the samples that count, where a log states its samples otherwise."""
    counted, batch = by_interval(case), case.batch
    if not counted or not batch:
        return []
    samples = [at for _, at in counted]
    last, gap = samples[-1], max(b - a for a, b in pairwise([0.0, *samples]))
    slack = 0.0 if in_samples(case) else 1.5 * gap  # by intervals, the first or the last may be another
    wrong = []
    for event, source, stated, share, surplus in _stated(case, batch, samples):
        found, allowed = stated or math.nan, share * last + slack
        if not last - allowed <= found <= last + allowed + (gap if surplus is None else surplus):
            count = "of no number" if math.isnan(found) else f"{found:,.0f}"
            wrong.append((event.line, f"{source} {count}, last evaluation after {last:,.0f}", found / last))
    return wrong


def _samples(case: Case) -> Breaches:
    for line, found, _ in disagreements(case):
        yield Breach(line, found)
    counted, batch = in_samples(case), case.batch
    if not counted or batch is None:
        if case.closed and case.evaluations:
            case.skip("samples", "epoch_num doesn't count samples; evaluations are taken to be an interval apart")
        return
    # An open run of bertbench may train beyond the horizon of its decay.
    last, at = counted[-1]
    most = batch * (case.number("bertbench_max_steps") or case.number(TRAINING_STEPS) or math.nan)
    for limit in (most, *(batch * (case.number(name) or 0.0) for name in _LIMITS)):
        if at > 1.02 * limit and (limit == most or _comparable(at, limit)):
            yield Breach(last.line, f"{at:,.0f} samples", f"at most {limit:,.0f}, by the steps that are planned")
    if case.closed and most > _LONGEST_HORIZON * at:
        yield Breach(last.line, f"{at:,.0f} of {most:,.0f} samples that are planned", "most of the schedule")


def _equal(case: Case) -> Breaches:
    named: dict[str, Event] = {}
    for key in sorted(case.keys()):
        name, event = _AFFIXES.sub("", key.lower()), case.all(key)[0]
        if name in _SETTINGS and not kind_of(key):
            first = named.setdefault(name, event)
            if first.value != event.value:
                yield Breach(event.line, f"{key} {shown(event.value)}, but {first.key} {shown(first.value)}")
    # A published warm-up of 10,000 steps starts at -9,500.
    keys = ("opt_learning_rate_warmup_steps", "start_warmup_step", TRAINING_STEPS)
    warm_up, start, steps = (case.number(key) or 0.0 for key in keys)
    if max(warm_up + min(0.0, start), start) > steps > 0:
        yield Breach(None, f"a warm-up of {warm_up:,.0f} steps from {start:,.0f}", f"at most {steps:,.0f} steps")
    # At the end; warm-ups before the first step may shift the decay, which other samples than steps hide.
    left = 1.1 - ((case.samples or 0.0) / (case.batch or math.inf) - abs(start)) / (steps or math.inf)
    highest = min(1.001, max(0.1, left)) * (case.number("opt_base_learning_rate") or 0.0)
    seconds, reached = case.time_to_train_s or 0.0, {one.accuracy for one in (case.best, *case.evaluations[-1:]) if one}
    began = min((one.time_ms for one in case.all("init_start")), default=case.started_ms) or 0.0
    for event, kind, name, value in _in_the_end(case):
        found = numeric(value) or 0.0
        if kind in ("seconds", "elapsed") and seconds > 0:
            whole = name.lower().startswith(("time_to_", "ttt"))
            least = 0.99 if whole else _TRAINING_ALONE  # evaluation and the start may be left out
            most = 1.01 if kind == "seconds" else (event.time_ms - began) / 970 / seconds  # since the program's start
            shares = [found * unit / seconds for unit in _UNITS]
            shares = [share for share in shares if _LEAST_SAME < share < _MOST_SAME]
            if shares and not any(least <= share <= most for share in shares):
                yield Breach(event.line, f"{name} {shown(value)}", f"{seconds:.1f} s, run_start to run_stop")
        elif kind == "lr" and found > highest > 0:
            yield Breach(event.line, f"{name} {shown(value)}", f"at most {highest:.3g}, by the rate and its decay")
        elif kind == "accuracy" and reached and 0 < found < 1 and min(abs(found - one) for one in reached) > _ALIKE:
            yield Breach(event.line, f"{name} {shown(value)}", "the last accuracy, or the best")
    for name, described in (case.system | dict.fromkeys(_IN_ALL, str(in_all(case.system) or "-"))).items():
        counted = case.first(name) or named.get(_AFFIXES.sub("", name))
        due = [numeric(one) for one in re.findall(r"[^\s,]+", described)]
        if counted and None not in due and numeric(alone(counted.value)) not in due:
            yield Breach(counted.line, f"{counted.key} {shown(counted.value)}", f"described: {described.strip():.60}")
    nodes, each = (case.system.get(name, "") for name in ("number_of_nodes", "accelerators_per_node"))
    platform = case.first("submission_platform")
    stated = re.findall(r"^(\d+)(?=\s*x\s*\D)|(?<=[-_]n)(\d+)(?=[-_]|$)", str(platform.value)) if platform else []
    counts = {"".join(found) for found in stated} - {nodes, each, str(in_all(case.system))}
    if platform and nodes.isdecimal() and counts:
        yield Breach(platform.line, f"submission_platform {shown(platform.value)}", f"{nodes} nodes, as described")


RULES = (
    Rule(
        "samples", "Evaluations, blocks, steps x batch, throughput x time and train_samples give the same samples",
        "mlcommons/logging, rcp_checker", "warning",
        "check what is counted as samples, and the batch that is logged", _samples,
    ),
    Rule(
        "stated-twice",
        "Settings and counts that are stated twice agree, in the description and the implementation's JSON too",
        _LOGGING, "warning",
        "log the value that was used, under each of its names", _equal,
    ),
)  # fmt: skip
