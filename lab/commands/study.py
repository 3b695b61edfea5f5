"""Make the command of a study, which reads its definition, runs missing trials, and prints tables."""

import argparse
import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertbench.cli.arguments import add_number, emit
from bertbench.common.errors import ConfigError
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from lab.bench.harness import Command, table_lines
from lab.study.definition import STUDIES, Configuration, Definition, Values, read_definition
from lab.study.engine import Study, TrialOutcome
from lab.study.language_run import read_setting, run_setting

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


def add_study_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options of the study of this name."""
    add_number(parser, "--seeds", "N", "runs of every configuration (default: the definition's)")
    parser.add_argument(
        "--definition", type=Path, metavar="FILE", help="another definition of the study (default: the project's)"
    )
    add_folder_arguments(parser, name)


def study_folder(arguments: argparse.Namespace, name: str) -> Path:
    """Return a study's folder: that of --out, or the default."""
    return arguments.out or runs_folder() / f"study_{name}"


def study_command(name: str) -> Command:
    """Return the command of the study that lab/studies/<name>.json defines."""

    def run(arguments: argparse.Namespace) -> int:
        return run_study(arguments, name, definition_of(arguments, name))

    return partial(add_study_arguments, name=name), run


def check_optuna() -> None:
    """Raise ConfigError if Optuna, an optional extra, is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("Optuna, by which studies tune, isn't installed; run pip install 'bertbench[study]'")


def run_study(arguments: argparse.Namespace, name: str, definition: Definition) -> int:
    """Run a study's missing trials, and print its tables."""
    if definition.tuning:
        check_optuna()
    check_configurations(definition)
    torch.set_num_threads(1)  # the models are so tiny that more threads make them slower
    folder = study_folder(arguments, name)
    with Progress() as progress:
        study = Study(definition, folder, partial(_run_trial, definition.setting), progress)
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
    emit(arguments.json, shown, "\n".join(lines))
    return 0


def definition_of(arguments: argparse.Namespace, name: str) -> Definition:
    """Read the definition of a study: that of --definition, or the project's."""
    return read_definition(arguments.definition or STUDIES / f"{name}.json")


def check_configurations(definition: Definition) -> None:
    """Raise ConfigError if any configuration can't be trained, before training starts."""
    for configuration in definition.configurations():
        lowest = {name: bounds.value(bounds.low) for name, bounds in configuration.space.items()}
        read_setting(definition.setting, configuration.settings | lowest)


def _run_trial(
    shared: dict[str, Any], configuration: Configuration, values: Values, seed: int, most: float
) -> TrialOutcome:
    return run_setting(read_setting(shared, configuration.settings | values), seed, most)
