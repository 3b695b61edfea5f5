"""training_rules.adoc, "Random numbers": closed runs log their seeds, and no two runs log the same seed.

The text has this rule from round 4.1 on. The official seed checker, a part of the package checker, applies it to closed
packages from ruleset 1.0.0 on. So we apply it to single logs from 4.1 on, and to packages from 1.0 on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compliance.read.case import Case
from compliance.read.log import Event
from compliance.read.record import shown
from compliance.read.run import RunFacts
from compliance.rules.rule import PACKAGE_CHECKER, TRAINING_RULES, Breach, Checked, Fault, Gap, Rule, Source, rule

SEEDS_LOGGED_SINCE = "4.1.0"
_RANDOM_NUMBERS = Source(TRAINING_RULES, "Random numbers")
_REMEDY = "seed each run from the clock or /dev/urandom, and log the seed with mllog, which adds file and lineno"


class _Place(NamedTuple):
    """A seed and the line of the source file that logs it; two runs may not share all three."""

    file: str
    line: str
    seed: int


def as_seed(value: Any) -> int | None:
    """Return a seed as the official seed checker reads it, by int(); None if that fails."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


@rule(
    "seed-value", _RANDOM_NUMBERS, "A closed run logs its seeds as whole numbers, or as text that Python's int() reads",
    "log the seed as a whole number",
    since=SEEDS_LOGGED_SINCE,
)  # fmt: skip
def seeds_are_integers(case: Case) -> Checked:
    if not case.closed:
        return
    if case.first("seed") is None:
        yield Gap("the log gives no seed")
    for event in case.all("seed"):
        if as_seed(event.value) is None:
            yield Fault(event.line, f"seed {shown(event.value)}")


SEEDS = Rule(
    "seed", Source(PACKAGE_CHECKER, "seed_checker"),
    "Every run of a closed result logs a seed with the source file and line; no two runs log the same seed on the same "
    "line",
    _REMEDY,
)  # fmt: skip


def seeds_of_runs(runs: Mapping[str, RunFacts]) -> list[Breach]:
    """Return what the official seed checker finds in the single runs of a result, by log name.

    The text lets the processes of a run share a seed. The program refuses a log that has a seed twice from one line.
    """
    breaches = []
    for log, facts in runs.items():
        places: set[_Place] = set()
        events = facts.all("seed")
        if not events:
            breaches.append(SEEDS.breach(f"{log} logs no seed", "at least one seed in every run"))
        for event in events:
            seed = as_seed(event.value)
            missing = [name for name in ("file", "lineno") if name not in event.metadata]
            if seed is None:
                logged = f"{log} logs seed {shown(event.value)}"
                breaches.append(SEEDS.breach(logged, "a whole number", event.line))
                continue
            if missing:
                logged = f"{log} logs a seed without {' and '.join(missing)}"
                breaches.append(SEEDS.breach(logged, "the source file and line that log it", event.line))
                continue
            place = _place(event, seed)
            if place in places:
                logged = f"{log} logs seed {shown(event.value)} twice on the same line of the source"
                breaches.append(SEEDS.breach(logged, "a seed that only one process logs", event.line))
            places.add(place)
    return breaches


def _place(event: Event, seed: int) -> _Place:
    return _Place(shown(event.metadata["file"]), shown(event.metadata["lineno"]), seed)


def equal_seeds(runs: Mapping[str, RunFacts]) -> Mapping[str, str]:
    """Return the logs with a seed that an earlier log has from the same source line, and what was found."""
    first: dict[_Place, str] = {}
    equal: dict[str, str] = {}
    for log, facts in runs.items():
        for event in facts.all("seed"):
            seed = as_seed(event.value)
            if seed is None or not {"file", "lineno"} <= event.metadata.keys():
                continue
            other = first.setdefault(_place(event, seed), log)
            if other != log:
                equal.setdefault(log, f"{log} logs seed {shown(event.value)} on the same source line as {other}")
    return equal


def unreadable_for_seeds(logs: Sequence[str]) -> list[Breach]:
    """Return a breach for logs with lines on which the official seed checker fails, which it allows in no run."""
    if not logs:
        return []
    return [SEEDS.breach(f"records that can't be read in {', '.join(logs)}", "logs that the seed checker can read")]


RULES = (seeds_are_integers, SEEDS)
