"""Judge a result's runs together: a seed each, the same settings and system, no copied run."""

import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from compliance.finding import Finding, Severity
from compliance.log import Event
from compliance.record import shown
from compliance.run import RunFacts, number
from compliance.source import CannotJudge, read_plain

PARAMETERS = "package_checker_params"
MEND_RUNS = "run the benchmark again; from more than ten runs, take ten consecutive ones"
_SETTINGS = (
    "global_batch_size", "gradient_accumulation_steps", "num_warmup_steps", "start_warmup_step", "opt_name",
    "opt_base_learning_rate", "opt_lamb_epsilon", "opt_epsilon", "opt_learning_rate_training_steps",
    "opt_learning_rate_warmup_steps", "opt_learning_rate_decay_steps", "opt_lamb_beta_1", "opt_lamb_beta_2",
    "opt_lamb_weight_decay_rate", "opt_end_learning_rate", "opt_lamb_learning_rate_decay_poly_power",
    "opt_gradient_clip_norm", "max_sequence_length", "max_predictions_per_seq",
)  # fmt: skip
_NAMES = ("submission_platform", "submission_org")
KEPT = frozenset(
    (
        *_SETTINGS, *_NAMES, "seed", "submission_division", "submission_benchmark", "submission_status", "run_start",
        "run_stop", "eval_accuracy", "train_samples", "not_a_result",
    )
)  # fmt: skip
"""Keys of a run that its result's judge needs."""
MOST_KEPT = 1_000
"""Events kept of each of these keys; a run has some tens of evaluations."""
_FEWEST_ALIKE = 3
_FINE = 5  # decimals: accuracies with fewer can agree by chance


class Run(NamedTuple):
    """One run of a result; `facts` is None where its log can't be judged."""

    name: str
    facts: RunFacts | None


def judge(folder: Path, name: str, closed: bool, runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield faults of a result's runs together; `folder` may hold the submitter's requests for exceptions."""
    readable = [(run.name, run.facts) for run in runs if run.facts is not None]
    yield from _seeds(name, closed, "seed-checker-bypass" not in parameters(folder), readable)
    yield from _settings(name, readable)
    yield from _names(name, readable)
    yield from _copies(name, closed, readable)


def parameters(folder: Path) -> list[str]:
    """Return the lines of package_checker_params, with their line ends, as the official checker reads them."""
    lines: list[str] = []
    for path in (folder / PARAMETERS, folder.parent / PARAMETERS):
        try:
            content = read_plain(path, 1 << 16)
        except CannotJudge:
            continue
        lines += io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace").readlines()
    return lines


def _seeds(name: str, closed: bool, required: bool, runs: Sequence[tuple[str, RunFacts]]) -> Iterator[Finding]:
    asked = "a seed of its own in every run, a whole number from the clock or /dev/urandom"
    severity: Severity = "error" if closed else "warning"
    first: dict[tuple[str, str, int], str] = {}
    drawn: dict[tuple[int, ...], str] = {}
    for log, facts in runs:
        seeds = [(event, as_integer(event.value)) for event in facts.all("seed")]
        sound = [(event, seed) for event, seed in seeds if seed is not None]
        if not seeds and closed:
            found = f"{name}: {log} logs no seed"
            yield Finding("seed", "error" if required else "warning", None, found, asked, "log the seed")
        for event in (event for event, seed in seeds if seed is None):
            found = f"{name}: {log} logs seed {shown(event.value)}"
            yield Finding("seed", severity, event.line, found, asked, "log the number that seeded the generators")
        shared = [(event, first[place]) for event, seed in sound if (place := _place(event, seed)) in first]
        values = tuple(seed for _, seed in sound)
        if values in drawn and not shared:  # the same seeds, logged from another place
            shared = [(sound[0][0], drawn[values])]
        for event, other in shared:
            found = f"{name}: {log} logs seed {shown(event.value)}, as {other} does"
            yield Finding("seed", severity, event.line, found, asked, MEND_RUNS)
        if values:
            drawn.setdefault(values, log)
        for event, seed in sound:
            first.setdefault(_place(event, seed), log)


def _place(event: Event, seed: int) -> tuple[str, str, int]:
    file = str(event.metadata.get("file")).rsplit("/", 1)[-1]
    line = as_integer(event.metadata.get("lineno"))
    return file, str(event.metadata.get("lineno") if line is None else line), seed


def as_integer(value: Any) -> int | None:
    """Return a value's whole number from any type or spelling, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            return int(value, 0) if value.strip().lower().startswith(("0x", "0o", "0b")) else int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    found = value if isinstance(value, int) else number(value)
    return int(found) if found is not None and found == int(found) else None


def _settings(name: str, runs: Sequence[tuple[str, RunFacts]]) -> Iterator[Finding]:
    for key in _SETTINGS:
        # a dict keeps the order, a set doesn't
        different = {shown(event.value, 40): None for _, facts in runs for event in facts.all(key)}
        if len(different) > 1:
            severity: Severity = "error" if key == "global_batch_size" else "warning"
            found = f"{name}: {key} is {' and '.join(list(different)[:5])}"
            yield Finding("settings", severity, None, found, "one value in all runs of a result", MEND_RUNS)


def _names(name: str, runs: Sequence[tuple[str, RunFacts]]) -> Iterator[Finding]:
    for key in _NAMES:
        logged = {log: shown(facts.value(key)) for log, facts in runs}
        usual = Counter(logged.values()).most_common(1)
        others = [f"{value} in {log}" for log, value in logged.items() if value != usual[0][0]]
        if others:
            found = f"{name}: {key} is {usual[0][0]}, but {', '.join(others[:5])}"
            yield Finding("same-system", "error", None, found, "runs of one submitter on one system", MEND_RUNS)


def _copies(name: str, closed: bool, runs: Sequence[tuple[str, RunFacts]]) -> Iterator[Finding]:
    """Find runs with the same measurements; none of 248 published results has any."""
    copies: dict[str, str] = {}
    for (one, its), (other, others) in combinations(runs, 2):
        if other not in copies and (_same_accuracies(its, others) or _same_times(its, others)):
            copies[other] = one
    if copies:
        listed = ", ".join(f"{log} as {original}" for log, original in list(copies.items())[:5])
        found = f"{name}: runs with the same measurements at the same evaluations: {listed}"
        severity: Severity = "error" if closed else "warning"
        yield Finding("copied-run", severity, None, found, "ten runs, each with its own accuracies", MEND_RUNS)


def _same_accuracies(one: RunFacts, other: RunFacts) -> bool:
    pairs = list(zip(one.evaluations, other.evaluations, strict=False))
    if len(pairs) < _FEWEST_ALIKE:
        return False
    alike = [a.accuracy for a, b in pairs if a.accuracy == b.accuracy]
    fine = sum(round(accuracy, _FINE - 1) != accuracy for accuracy in alike)
    return len(alike) == len(pairs) or (fine >= _FEWEST_ALIKE and 2 * fine >= len(pairs))


def _same_times(one: RunFacts, other: RunFacts) -> bool:
    """Return whether evaluations came the same milliseconds after run_start, which no machine repeats."""
    started = (one.started_ms, other.started_ms)
    pairs = list(zip(one.evaluations, other.evaluations, strict=False))
    if None in started or len(pairs) < _FEWEST_ALIKE:
        return False
    offsets = [(a.time_ms - (one.started_ms or 0.0), b.time_ms - (other.started_ms or 0.0)) for a, b in pairs]
    alike = sum(math.isfinite(a) and a == b and a > 0 for a, b in offsets)
    return alike >= _FEWEST_ALIKE and 2 * alike >= len(pairs)
