"""Compare the settings of runs, and group a system's runs by them: a mean over different settings is meaningless.

Settings come from a run's log and from bertbench's files next to it: config.json (every setting) and run.json (commit,
processor, versions). Any of the three may be missing. An unknown setting doesn't count as a difference.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertbench.common.markup import cell
from bertbench.runs.json_files import comparable
from bertbench.runs.run_summary import RunSummary
from compliance.read import description
from compliance.read.record import printable

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
Values = dict[str, Any]
Settings = dict[str, Values]
"""For each source, the values by name."""


@dataclass
class _SameSettings:
    """Runs with the same settings, by their index in a list of runs."""

    settings: Settings
    members: list[int]


def group_title(system: str, settings: Values) -> str:
    """Return the title of a group: the system's name and the settings that distinguish the group."""
    name = printable(system)
    parts = [f"{cell(key)}={cell(value_text(key, value))}" for key, value in settings.items()]
    if len(parts) > _MOST_SHOWN:
        parts = [*parts[:_MOST_SHOWN], f"and {len(parts) - _MOST_SHOWN} more"]
    return f"{name}: {', '.join(parts)}" if parts else name


def same_settings(runs: Sequence[RunSummary]) -> list[tuple[Values, list[int]]]:
    """Group the runs of one system by settings: those that differ between groups, and the runs' places, in order.

    A run with fewer known settings joins the group that it agrees with. If it agrees with several, it forms its own.
    """
    known = [known_settings(run) for run in runs]
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
    return [(_distinguishing(group.settings, differing), sorted(group.members)) for group in groups]


def _distinguishing(settings: Settings, differing: Sequence[tuple[str, str]]) -> Values:
    """Return a group's values for the settings in which groups differ."""
    return {key: settings[source].get(key) if source in settings else "unknown" for source, key in differing}


def known_settings(run: RunSummary) -> Settings:
    """Return a run's known settings, by source."""
    facts = run.facts
    settings = {}
    if facts.started_ms is not None:  # a run that ended before it started the clock didn't log all settings
        logged = {key: comparable(facts.value(key)) for key in _LOGGED if facts.first(key) is not None}
        settings[_LOG] = logged | {RESUMED: facts.first(RESUMED) is not None}
    for source, content in ((_CONFIG, run.settings), (_ORIGIN, run.origin)):
        if content:
            settings[source] = {key: content[key] for key in content if key.split(".")[0] not in _IGNORED[source]}
    return settings


def stated_settings(run: RunSummary) -> Settings:
    """Return a run's known settings, everything else that its log says about its set-up, and its system description."""
    settings = {**known_settings(run), _SYSTEM: description.fields_of_log(run.log)}
    logged: Values = {}
    for key in run.facts.keys() - _LOGGED:
        if key.startswith(_SET_UP) and run.facts.value(key) is not None:
            logged[key] = comparable(run.facts.value(key))
    settings[_LOG] = logged | settings.get(_LOG, {})
    return settings


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
