"""Read the settings of runs, and group a system's runs by them, because a mean over different settings is meaningless.

Settings come from a run's log and from bertbench's files next to it: config.json (every setting) and run.json (commit,
processor, versions). Any of the three may be missing. An unknown setting doesn't count as a difference.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertbench.common.markup import cell
from bertbench.common.published_results import MLPERF_TARGET
from bertbench.runs.json_files import read_json
from bertbench.runs.verdicts import JudgeFinding, Verdict, Verdicts
from compliance.read import description
from compliance.read.find import find_logs
from compliance.read.log import read_events
from compliance.read.record import printable
from compliance.read.run import RunFacts, number

RESUMED = "resumed"
_LOGGED = frozenset(
    (
        "submission_division", "submission_platform", "global_batch_size", "gradient_accumulation_steps",
        "max_sequence_length", "num_warmup_steps", "start_warmup_step", "opt_name", "opt_base_learning_rate",
        "opt_lamb_epsilon", "opt_lamb_beta_1", "opt_lamb_beta_2", "opt_lamb_weight_decay_rate",
        "opt_learning_rate_training_steps", "opt_end_learning_rate", "opt_learning_rate_warmup_steps",
        "opt_lamb_learning_rate_decay_poly_power", "opt_gradient_clip_norm",
    )
)  # fmt: skip
"""The keys of a log that hold a run's settings."""
_LOG = "log"
_CONFIG = "config.json"
_ORIGIN = "run.json"
_SYSTEM = "system"
_SOURCES = (_CONFIG, _LOG, _ORIGIN, _SYSTEM)
"""The sources of settings, in the order in which they are compared."""
_SET_UP = ("submission_", "opt_", "max_", "eval_samples")
_IGNORED = {
    _CONFIG: ("name", "description", "source"),
    _ORIGIN: ("seed", "variables"),
}  # no effect, or different in every run
_COMMIT_DIGITS = 7
_MOST_SHOWN = 6
_TARGET_RULE = "target"  # the judge's, for the accuracy of closed runs
Values = dict[str, Any]
Settings = dict[str, Values]
"""For each source, the values by name."""
Runs = list[tuple[Path, RunFacts]]


@dataclass(frozen=True)
class RunGroup:
    """Runs whose known settings are equal; `settings` holds those that differ from other groups."""

    name: str
    runs: Runs
    settings: Values
    verdicts: Verdicts = field(default_factory=dict)
    """The judge's verdict on each log."""
    together: tuple[JudgeFinding, ...] = ()
    """The judge's findings across all runs of a folder; only the last group of a folder has them."""


@dataclass
class _SameSettings:
    """Runs with the same settings, by their index in a list of runs."""

    settings: Settings
    members: list[int]


def read_runs(paths: Sequence[Path]) -> Runs:
    """Return the runs in logs and in folders of logs. Raises CannotJudge if there is no log, or one can't be read."""
    return [(log, RunFacts(read_events(log))) for path in paths for log in find_logs(path)]


def group_title(system: str, settings: Values) -> str:
    """Return the title of a group: the system's name and the settings that distinguish the group."""
    name = printable(system)
    parts = [f"{cell(key)}={cell(value_text(key, value))}" for key, value in settings.items()]
    if len(parts) > _MOST_SHOWN:
        parts = [*parts[:_MOST_SHOWN], f"and {len(parts) - _MOST_SHOWN} more"]
    return f"{name}: {', '.join(parts)}" if parts else name


def grouped_by_settings(name: str, runs: Runs) -> list[RunGroup]:
    """Group the runs of one system by settings, in the order of the runs.

    A run with fewer known settings joins the group that it agrees with. If it agrees with several, it forms its own.
    """
    known = [known_settings(log, facts) for log, facts in runs]
    groups: list[_SameSettings] = []
    most_settings_first = sorted(range(len(runs)), key=lambda run: -len(known[run]))
    for run in most_settings_first:
        settings = known[run]
        agreeing = [group for group in groups if _agree(group.settings, settings)]
        same_sources = [group for group in agreeing if group.settings.keys() == settings.keys()]
        candidates = same_sources or agreeing
        if len(candidates) == 1:
            candidates[0].members.append(run)
        else:
            groups.append(_SameSettings(settings, [run]))
    differing = differing_keys([group.settings for group in groups])
    groups.sort(key=lambda group: min(group.members))
    run_groups = []
    for group in groups:
        members = [runs[run] for run in sorted(group.members)]
        run_groups.append(RunGroup(name, members, _distinguishing(group.settings, differing)))
    return run_groups


def _distinguishing(settings: Settings, differing: Sequence[tuple[str, str]]) -> Values:
    """Return a group's values for the settings in which groups differ."""
    return {key: settings[source].get(key) if source in settings else "unknown" for source, key in differing}


def known_settings(log: Path, facts: RunFacts) -> Settings:
    """Return a run's known settings, by source."""
    settings = {}
    if facts.started_ms is not None:  # a run that ended before it started the clock didn't log all settings
        logged = {key: _plain(facts.value(key)) for key in _LOGGED if facts.first(key) is not None}
        settings[_LOG] = logged | {RESUMED: facts.first(RESUMED) is not None}
    for name, ignored in _IGNORED.items():
        if content := read_json(log, name):
            settings[name] = flattened({key: value for key, value in content.items() if key not in ignored})
    return settings


def stated_settings(log: Path, facts: RunFacts) -> Settings:
    """Return a run's known settings, everything else that its log says about its set-up, and its system description."""
    settings = {**known_settings(log, facts), _SYSTEM: description.fields_of_log(log)}
    logged: Values = {}
    for key in facts.keys() - _LOGGED:
        if key.startswith(_SET_UP) and facts.value(key) is not None:
            logged[key] = _plain(facts.value(key))
    settings[_LOG] = logged | settings.get(_LOG, {})
    return settings


def configured(log: Path) -> Values:
    """Return the settings in a log's config.json, `flattened`; empty if there is none."""
    return flattened(read_json(log, _CONFIG))


def system_name(log: Path, facts: RunFacts) -> str:
    """Return the system's name, from the run's configuration, its log, or the folder."""
    name = read_json(log, _CONFIG).get("name") or facts.platform
    return name if isinstance(name, str) else log.parent.parent.name


def target_of(log: Path, facts: RunFacts) -> float | None:
    """Return the accuracy that ends a run.

    For a closed run, it is MLPerf's target. For an open run, it is the run's own, if its log or configuration states
    it. The closed target of round 0.7 was lower; the judge takes that into account.
    """
    if facts.division == "closed":
        return MLPERF_TARGET
    logged = number(facts.value("bertbench_target"))
    return number(configured(log).get("evaluation.target")) if logged is None else logged


def reached_target(log: Path, facts: RunFacts, verdict: Verdict) -> bool:
    """Return whether a run reached its target and counts: both its log and the judge must say so."""
    return verdict.verdict == "pass" and _ended_at_target(log, facts, verdict)


def reached_not_passed(log: Path, facts: RunFacts, verdict: Verdict) -> bool:
    """Return whether a run reached its target, but the judge doesn't pass its log for another reason."""
    not_passed = verdict.verdict in ("fail", "cannot-judge")
    measured = facts.best_accuracy is not None
    return not_passed and measured and _ended_at_target(log, facts, verdict)


def _ended_at_target(log: Path, facts: RunFacts, verdict: Verdict) -> bool:
    """Return whether a run ended with success, at or above its target.

    The judge checks the target of a closed run that it can judge. Other targets are checked here.
    """
    if facts.status != "success" or facts.not_a_result is not None:
        return False
    if facts.division == "closed" and verdict.verdict != "cannot-judge":
        return all(finding.rule != _TARGET_RULE for finding in verdict.decisive)
    target = target_of(log, facts)
    best_accuracy = facts.best_accuracy or 0.0
    return target is None or best_accuracy >= target


def flattened(content: Values, prefix: str = "") -> Values:
    """Return nested values under the names that --set uses. Nulls are left out: older commits lack newer settings."""
    flat: Values = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = _plain(value)
    return flat


def _plain(value: Any) -> Any:
    """Return a value that equals itself and can be printed: NaN and lists become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    return value if isinstance(value, str | int) else json.dumps(value)


def _agree(a: Settings, b: Settings) -> bool:
    return all(a[source] == b[source] for source in a.keys() & b.keys())


def differing_keys(groups: Sequence[Settings]) -> list[tuple[str, str]]:
    """Return the sources and keys in which groups differ.

    If all groups have a config.json, leave out the copies of its settings in the log.
    """
    all_have_config = all(_CONFIG in group for group in groups)
    pairs = []
    for source in _SOURCES:
        known = [group[source] for group in groups if source in group]
        for key in sorted({key for values in known for key in values}):
            if all(values.get(key) == known[0].get(key) for values in known):
                continue
            is_copy = source == _LOG and all_have_config and key != RESUMED
            if not is_copy:
                pairs.append((source, key))
    return pairs


def value_text(key: str, value: Any) -> str:
    """Return a setting's value for a report; a commit is shortened to its first digits."""
    if key == "commit" and isinstance(value, str):
        return value[:_COMMIT_DIGITS]
    return value if isinstance(value, str) else json.dumps(value)
