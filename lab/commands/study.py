"""`bertbench lab study`: read a study's definition, run its missing trials, and print tables.

A study of a system prints the values that it tuned as words of --set, and draws its trials.
"""

import argparse
import importlib.util
import json
from functools import partial
from pathlib import Path

import torch

from bertbench.cli.arguments import add_number
from bertbench.common.errors import ConfigError
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.common.tables import table_lines
from bertbench.config import load_system
from bertbench.config.given import override_texts
from bertbench.loading.inputs import open_data
from compliance.read.record import answer_json
from lab.journal import Record
from lab.records import record_text
from lab.study.definition import STUDIES, Configuration, Definition, Prune, Values, read_definition
from lab.study.engine import Study, TrialOutcome
from lab.study.language_run import read_setting, run_setting
from lab.study.system_run import run_on_system

_COMPARISONS = {
    "tuned values of": "{0[values_of]}", "configuration": "{0[difference][arm]}", "against": "{0[difference][against]}",
    "ratio": "{0[ratio]:.3f}", "95 % from": "{0[ratio_low]:.3f}", "to": "{0[ratio_high]:.3f}", "seeds": "{0[seeds]:d}",
    "Holm's p": "{0[holm_p]:.2g}", "verdict": "{0[verdict]}",
}  # fmt: skip
_CONFIGURATIONS = {
    "configuration": "{0[arm]}", "reached": "{0[reached]:d}", "of": "{0[seeds]:d}",
    "samples": "{0[samples_to_target]:,.0f}", "± 95 %": "{0[half_width]:,.0f}",
    "seconds": "{0[seconds_to_target]:,.2f}", "clipped": "{0[clipped]:.0%}",
}  # fmt: skip
_RULE = (
    "A trial ends at the target. Differences are computed for each seed with which both configurations reached it, "
    "with Student's 95 % interval. A verdict states a difference only if the p-value of the paired t-test, corrected "
    "for all tests of the study (Holm), is at most 0.05, and no seed missed the target. Intervals cover the variation "
    "between seeds, but not that of tuning."
)


def add_folder_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the option for the folder that a study writes."""
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help="folder for runs and journal, from which an interrupted study resumes (default: "
        f"runs/study_{name})",
    )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study, its seeds and its folder."""
    parser.add_argument(
        "study", metavar="STUDY",
        help=f"one of {', '.join(_project_studies())}, or a JSON file that defines another study",
    )  # fmt: skip
    parser.add_argument("--system", metavar="SYSTEM", help="train this system instead of the study's own")
    add_number(parser, "--seeds", "N", "runs of every configuration (default: the definition's)")
    add_folder_arguments(parser, "STUDY")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials of the study, and print its tables."""
    path = _definition_file(arguments.study)
    definition = _for_system(read_definition(path), arguments)
    if definition.tuning:
        check_optuna()
    check_configurations(definition)
    if definition.system:
        open_data(load_system(definition.system, definition.setting))
    torch.set_num_threads(1)  # the models are so tiny that more threads make them slower
    folder = study_folder(arguments, path.stem)
    with Progress() as progress:
        study = Study(definition, folder, partial(_run_trial, definition), progress)
        rows = study.rows(range(1, 1 + (arguments.seeds or definition.seeds)))
        record = study.record(rows)
    shown = {"question": definition.question, "limits": definition.limits, "rule": _RULE, **record}
    compared = [{"values_of": "each its own", **pair} for pair in (*record["comparisons"], *record["at_equal_values"])]
    lines = [
        *table_lines(record["arms"], _CONFIGURATIONS),
        "",
        *table_lines(compared, _COMPARISONS),
        "",
        f"trials: {folder / 'trials.jsonl'}",
    ]
    if definition.system and definition.tuning:
        lines.append(f"drawn: {_drawn(study, folder)}")
        lines += [
            f"{name}: {' '.join(f'--set {word}' for word in override_texts(values))}"
            for name, values in study.values.items()
            if values
        ]
    if arguments.json:
        print(record_text(json.loads(answer_json(arguments.command, shown))), end="")
    else:
        print("\n".join(lines))
    return 0


def _for_system(definition: Definition, arguments: argparse.Namespace) -> Definition:
    """Return the definition for the system of --system. Raises ConfigError if the study trains no system."""
    if arguments.system is None:
        return definition
    if definition.system is None:
        raise ConfigError(
            f"--system {arguments.system}: {arguments.study} trains a made-up language; leave out --system, or choose "
            "a study whose definition names a system"
        )
    return definition.model_copy(update={"system": arguments.system})


def _drawn(study: Study, folder: Path) -> Path:
    from lab.study.trials_figure import draw_trials  # noqa: PLC0415 - matplotlib takes a quarter of a second

    trials: dict[str, list[Record]] = {configuration.name: [] for configuration in study.configurations}
    for record in study.journal.records:
        if record["kind"] == "tuning":
            trials[record["arm"]].append(record)
    path = folder / "trials.svg"
    draw_trials(trials, path)
    return path


def _project_studies() -> list[str]:
    """Return the names of the studies that come with the project."""
    return sorted(path.stem for path in STUDIES.glob("*.json"))


def _definition_file(study: str) -> Path:
    """Return the definition of a study, given by name or as a file. Raises ConfigError if there is neither."""
    if study in _project_studies():
        return STUDIES / f"{study}.json"
    path = Path(study)
    if not path.exists():
        raise ConfigError(
            f"{study}: found neither a study of this name nor a file; choose from {', '.join(_project_studies())}, or "
            "give the file of a definition"
        )
    return path


def study_folder(arguments: argparse.Namespace, name: str) -> Path:
    """Return a study's folder: that of --out, or the default."""
    return arguments.out or runs_folder() / f"study_{name}"


def check_optuna() -> None:
    """Raise ConfigError if Optuna, an optional extra, is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("Optuna, by which studies tune, isn't installed; run pip install 'bertbench[study]'")


def check_configurations(definition: Definition) -> None:
    """Raise ConfigError if any configuration can't be trained, before training starts."""
    for configuration in definition.configurations():
        lowest = {name: bounds.value(bounds.low) for name, bounds in configuration.space.items()}
        settings = configuration.settings | lowest
        if definition.system is None:
            read_setting(definition.setting, settings)
        else:
            load_system(definition.system, definition.setting | settings)


def _run_trial(
    definition: Definition, configuration: Configuration, values: Values, seed: int, most: float, prune: Prune | None
) -> TrialOutcome:
    settings = configuration.settings | values
    if definition.system is None:
        return run_setting(read_setting(definition.setting, settings), seed, most)
    return run_on_system(definition.system, definition.setting | settings, seed, most, prune)
