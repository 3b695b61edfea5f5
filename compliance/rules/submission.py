"""Rules about the submission: division, benchmark, names, seeds, caches."""

from collections.abc import Callable
from typing import Any

from compliance import description
from compliance.finding import Breach, Breaches, Case, Check, Rule, odd
from compliance.record import shown
from compliance.run import as_integer

_TRAINING_RULES = "training_rules.adoc"
_DIVISIONS = description.DIVISIONS
_SEEDS_SINCE = "4.1.0"
_YES = ("true", "yes", "on", "1", "1.0", "none")  # an event without a value says that it happened


def _stated(*keys: str, sound: Callable[[Any], object]) -> Check:
    """Return the check that each of the keys is there, with sound values."""

    def check(case: Case) -> Breaches:
        for key in keys:
            if case.first(key) is None:
                yield Breach(None, f"no {key}")
            yield from odd(case, key, sound)

    return check


def _as(expected: Callable[[Case], str | None]) -> Check:
    """Return the check that the division is the one expected."""

    def check(case: Case) -> Breaches:
        due, found = expected(case), case.first("submission_division")
        if due in _DIVISIONS and (found is None or found.value != due):
            yield Breach(found and found.line, f"division {shown(found and found.value)}", f"division {due}")

    return check


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "PLACEHOLDER" not in value.upper()


def _seed(case: Case) -> Breaches:
    if case.closed and case.ruleset >= _SEEDS_SINCE and case.first("seed") is None:
        yield Breach(None, "no seed")


def _seed_value(case: Case) -> Breaches:
    yield from odd(case, "seed", lambda value: (seed := as_integer(value)) is not None and seed >= 0)


def _cache_clear(case: Case) -> Breaches:
    if case.closed:
        yield from odd(case, "cache_clear", lambda value: str(value).lower() in _YES)
    started = case.first("run_start")
    for event in case.all("cache_clear"):
        if started is not None and event.line > started.line and event.time_ms > started.time_ms:
            yield Breach(event.line, "caches cleared while the clock ran")


def _no_result(case: Case) -> Breaches:
    yield from odd(case, "not_a_result", lambda _: False, "no such event")


RULES = (
    Rule(
        "not-a-result", "A log of --smoke or --profile is no result",
        f"{_TRAINING_RULES}: run results", "error", "make a whole run", _no_result,
    ),
    Rule(
        "division", "The log names its division: closed or open", f"{_TRAINING_RULES}: divisions", "error",
        "log submission_division as closed or open",
        _stated("submission_division", sound=lambda value: value in _DIVISIONS),
    ),
    Rule(
        "division-required", "The division is the one that --division gives", "the command line", "error",
        "omit --division, or give logs of that division", _as(lambda case: case.required_division),
    ),
    Rule(
        "division-system", "The division is that of the system description",
        "submission_rules.adoc: system descriptions", "error",
        "correct the system description, or run again in its division", _as(lambda case: case.system.get("division")),
    ),
    Rule(
        "benchmark", "The benchmark is BERT",
        f"{_TRAINING_RULES}: benchmarks", "error", "log submission_benchmark as bert",
        _stated("submission_benchmark", sound=lambda value: value == "bert"),
    ),
    Rule(
        # 437 published passes have placeholders; where a ruleset asks for the names, the official checker does
        "names", "Submitter and platform have names", "submission_rules.adoc: submission", "info",
        "set the names before the run", _stated("submission_org", "submission_platform", sound=_is_name),
    ),
    Rule(
        "seed", "A closed run logs its seed, from ruleset 4.1.0", f"{_TRAINING_RULES}: random numbers",
        "warning",
        "log the key seed before training", _seed,
    ),
    Rule(
        "seed-value", "A seed is a whole number of at least 0",
        f"{_TRAINING_RULES}: random numbers", "warning",
        "log the number that seeded the generators", _seed_value,
    ),
    Rule(
        "cache-clear", "Caches are cleared before the run, off the clock",
        f"{_TRAINING_RULES}: data state at start of run", "warning",
        "clear the caches before run_start and log cache_clear true", _cache_clear,
    ),
)  # fmt: skip
