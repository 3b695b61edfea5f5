"""Divide a system's runs by their settings, because a mean over different settings is meaningless.

Settings come from a run's log, and from bertbench's files beside it: config.json (every setting) and run.json (commit,
processor, versions). Each of the three may be missing; an unknown setting doesn't count as a difference.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.markup import cell
from bertbench.common.published_results import MLPERF_TARGET
from bertbench.run_files.reading import described
from bertbench.run_files.verdicts import Finding, Verdict, Verdicts
from compliance.read import description
from compliance.read.find import find_logs
from compliance.read.log import read_events
from compliance.read.record import printable
from compliance.read.run import RunFacts, number

RESUMED = "resumed"
LOGGED = frozenset(
    (
        "submission_division", "submission_platform", "global_batch_size", "gradient_accumulation_steps",
        "max_sequence_length", "num_warmup_steps", "start_warmup_step", "opt_name", "opt_base_learning_rate",
        "opt_lamb_epsilon", "opt_lamb_beta_1", "opt_lamb_beta_2", "opt_lamb_weight_decay_rate",
        "opt_learning_rate_training_steps", "opt_end_learning_rate", "opt_learning_rate_warmup_steps",
        "opt_lamb_learning_rate_decay_poly_power", "opt_gradient_clip_norm",
    )
)  # fmt: skip
"""Keys of a log that hold a run's settings."""
_LOG, _CONFIG, _ORIGIN, SYSTEM = "log", "config.json", "run.json", "system"
_SET_UP = ("submission_", "opt_", "max_", "eval_samples")
_IGNORED = {
    _CONFIG: ("name", "description", "source"),
    _ORIGIN: ("seed", "variables"),
}  # no effect, or different in every run
_COMMIT_DIGITS = 7
_MOST_SHOWN = 6
Values = dict[str, Any]
Runs = list[tuple[Path, RunFacts]]


class Group(NamedTuple):
    """Runs with equal known settings; `settings` are those that differ from other groups."""

    name: str
    runs: Runs
    settings: Values
    verdicts: Verdicts = {}  # noqa: RUF012 - never written to
    """The judge's, by log."""
    together: tuple[Finding, ...] = ()
    """What the judge finds across the runs of the folder; only the folder's last group has it."""


def read_runs(paths: Sequence[Path]) -> Runs:
    """Return the runs in logs and folders of logs. Raises CannotJudge without a log, or if one can't be read."""
    return [(log, RunFacts(read_events(log))) for path in paths for log in find_logs(path)]


def title(name: str, settings: Values) -> str:
    """Return the name of a group: its system's, and its distinguishing settings."""
    parts = [f"{cell(key)}={cell(value_text(key, value))}" for key, value in settings.items()]
    more = [f"and {len(parts) - _MOST_SHOWN} more"] if len(parts) > _MOST_SHOWN else []
    return printable(name) + (": " if parts else "") + ", ".join([*parts[:_MOST_SHOWN], *more])


def divided(name: str, runs: Runs) -> list[Group]:
    """Return the runs of one system grouped by settings, in their order.

    A run with fewer known settings joins the group that it agrees with, or forms its own if it agrees with several.
    """
    known = [known_settings(log, facts) for log, facts in runs]
    found: list[tuple[dict[str, Values], list[int]]] = []
    for run in sorted(range(len(runs)), key=lambda run: -len(known[run])):  # runs with the most settings first
        settings = known[run]
        agreeing = [group for group in found if _agree(group[0], settings)]
        agreeing = [group for group in agreeing if group[0].keys() == settings.keys()] or agreeing
        if len(agreeing) == 1:
            agreeing[0][1].append(run)
        else:
            found.append((settings, [run]))
    differing = differing_keys([settings for settings, _ in found])
    return [
        Group(
            name,
            [runs[run] for run in sorted(members)],
            {key: settings[source].get(key) if source in settings else "unknown" for source, key in differing},
        )
        for settings, members in sorted(found, key=lambda group: min(group[1]))
    ]


def known_settings(log: Path, facts: RunFacts) -> dict[str, Values]:
    """Return a run's known settings, by file."""
    found = {}
    if facts.started_ms is not None:  # a run that ended earlier didn't log all of them
        logged = {key: _plain(facts.value(key)) for key in LOGGED if facts.first(key) is not None}
        found[_LOG] = logged | {RESUMED: facts.first(RESUMED) is not None}
    for name, ignored in _IGNORED.items():
        if content := described(log, name):
            found[name] = flattened({key: value for key, value in content.items() if key not in ignored})
    return found


def stated(log: Path, facts: RunFacts) -> dict[str, Values]:
    """Return a run's known settings, all else that its log says of its set-up, and its system's description."""
    keys = (key for key in facts.keys() - LOGGED if key.startswith(_SET_UP) and facts.value(key) is not None)
    found = {**known_settings(log, facts), SYSTEM: description.of_log(log)}
    return {**found, _LOG: {key: _plain(facts.value(key)) for key in keys} | found.get(_LOG, {})}


def configured(log: Path) -> Values:
    """Return the settings in the config.json beside a log, as `flattened` does; empty without one."""
    return flattened(described(log, _CONFIG))


def target_of(log: Path, facts: RunFacts) -> float | None:
    """Return the accuracy that ends a run: MLPerf's of a closed one, an open one's own if log or configuration has it.

    The closed target of round 0.7 was lower; the judge knows it.
    """
    if facts.division == "closed":
        return MLPERF_TARGET
    logged = number(facts.value("bertbench_target"))
    return number(configured(log).get("evaluation.target")) if logged is None else logged


def reached(log: Path, facts: RunFacts, verdict: Verdict) -> bool:
    """Return whether a run reached its target: its log says so, and so does the judge.

    The judge decides on a closed run's target; an open run's own is compared here too.
    """
    if verdict.verdict != "pass" or facts.status != "success" or facts.not_a_result is not None:
        return False
    target = None if facts.division == "closed" else target_of(log, facts)
    return target is None or (facts.best_accuracy or 0.0) >= target


def flattened(content: Values, prefix: str = "") -> Values:
    """Return nested values named like --set names them, without nulls: older commits lack newer settings."""
    flat: Values = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = _plain(value)
    return flat


def _plain(value: Any) -> Any:
    """Return a value that equals itself and can be shown: NaN and lists become text."""
    finite = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if finite else json.dumps(value)


def _agree(one: dict[str, Values], other: dict[str, Values]) -> bool:
    return all(one[source] == other[source] for source in one.keys() & other.keys())


def differing_keys(groups: Sequence[dict[str, Values]]) -> list[tuple[str, str]]:
    """Return sources and keys in which groups differ; if all have a config.json, without its copies in the log."""
    pairs = []
    configured = all(_CONFIG in group for group in groups)
    for source in (_CONFIG, _LOG, _ORIGIN, SYSTEM):
        known = [group[source] for group in groups if source in group]
        keys = sorted({key for values in known for key in values})
        differ = [key for key in keys if any(values.get(key) != known[0].get(key) for values in known)]
        pairs += [(source, key) for key in differ if source != _LOG or not configured or key == RESUMED]
    return pairs


def value_text(key: str, value: Any) -> str:
    """Return a setting's value for a report; a commit is cut to its first digits."""
    if key == "commit" and isinstance(value, str):
        return value[:_COMMIT_DIGITS]
    return value if isinstance(value, str) else json.dumps(value)
