"""List the commands: their names, their help, and the functions that add their arguments and run them."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bertbench.cli import (
    checkpoints,
    configuration,
    data,
    evaluating,
    finetuning,
    following,
    launching,
    planning,
    running,
    submitting,
)
from bertbench.common.errors import ConfigError
from bertbench.common.paths import REPOSITORY


class Command(NamedTuple):
    """A command: one word, or a group's name and one word."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Runs it and returns the exit code."""

    takes_variables: bool = False
    """Whether it honours the variables that published submissions export (launch/variables.py)."""

    takes_sbatch_options: bool = False
    """Whether options for sbatch may follow after --; they are passed as `sbatch_options`."""

    reads_words: bool = False
    """Whether it parses its own arguments, because it is another program."""

    @property
    def words(self) -> list[str]:
        """Return the words of its name."""
        return self.name.split()


GROUPS: dict[str, tuple[Command, ...]] = {
    "set up": (
        Command("config list", "list the project's systems",
                configuration.add_list_arguments, configuration.list_systems),
        Command("config show", "print a system's resolved configuration",
                configuration.add_show_arguments, configuration.show),
        Command("config init", "write a system file for this machine, or for named nodes and GPUs",
                configuration.add_init_arguments, configuration.init),
        Command("config schema", "print the JSON schema of system files",
                configuration.add_schema_arguments, configuration.schema),
        Command("env", "describe this machine",
                configuration.add_env_arguments, configuration.env),
        Command("estimate", "estimate the time to train from published results",
                configuration.add_estimate_arguments, configuration.estimate),
    ),
    "data": (
        Command("data prepare", "make a dataset from text",
                data.add_prepare_arguments, data.prepare),
        Command("data convert-hdf5", "make a dataset from published samples in HDF5 files",
                data.add_hdf5_arguments, data.convert_hdf5),
        Command("data convert-tfrecord", "make a dataset from published samples in TFRecord files",
                data.add_tfrecord_arguments, data.convert_tfrecord),
        Command("data verify", "check a dataset, or a download of MLCommons' files",
                data.add_verify_arguments, data.verify),
        Command("data shuffle", "shuffle a dataset into new shards",
                data.add_shuffle_arguments, data.shuffle),
        Command("data show", "print a dataset's size and a histogram of its lengths",
                data.add_show_arguments, data.show),
        Command("checkpoint import", "convert a published checkpoint to a weights file",
                checkpoints.add_import_arguments, checkpoints.import_checkpoint),
        Command("checkpoint show", "list a checkpoint's tensors",
                checkpoints.add_show_arguments, checkpoints.show),
        Command("checkpoint export", "export weights to Hugging Face's format",
                checkpoints.add_export_arguments, checkpoints.export),
    ),
    "run": (
        Command("plan", "check memory, batches and inputs of a run without a GPU",
                planning.add_plan_arguments, planning.plan),
        Command("preflight", "check the nodes of an allocation before a run",
                running.add_preflight_arguments, running.preflight),
        Command("launch", "run a system one or more times, here or on a cluster",
                launching.add_launch_arguments, launching.launch, takes_variables=True, takes_sbatch_options=True),
        Command("train", "run as one rank; without a launcher, start all ranks on this host",
                running.add_train_arguments, running.train, takes_variables=True),
        Command("evaluate", "measure the accuracy of weights on the evaluation set",
                evaluating.add_evaluate_arguments, evaluating.evaluate),
        Command("fill-mask", "predict the masked words of a text",
                evaluating.add_fill_mask_arguments, evaluating.fill_mask),
        Command("finetune squad", "fine-tune on SQuAD, or score predictions",
                finetuning.add_squad_arguments, finetuning.squad),
        Command("balance", "simulate load-balancing methods",
                planning.add_balance_arguments, planning.balance),
    ),
    "follow": (
        Command("report", "summarize runs in a table, or list them",
                following.add_report_arguments, following.report),
        Command("compare", "compare two runs, or two sets of runs",
                following.add_compare_arguments, following.compare),
        Command("track", "copy runs to an experiment tracker: TensorBoard, MLflow, W&B",
                following.add_track_arguments, following.track),
    ),
    "submit": (
        Command("judge", "check logs against MLPerf's rules (also: python -m compliance)",
                submitting.add_judge_arguments, submitting.judge, reads_words=True),
        Command("package", "build a submission package",
                submitting.add_package_arguments, submitting.package),
    ),
}  # fmt: skip
"""The commands, in the order in which a user needs them."""
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


def callable_by(words: Sequence[str]) -> tuple[Command, ...]:
    """Return the commands that `words` may call; those of the laboratory are added if the first word is `lab`.

    Raises ConfigError if it is, but this isn't a checkout.
    """
    if not words or words[0] != "lab":
        return COMMANDS
    _make_laboratory_importable()
    of_laboratory: tuple[Command, ...] = importlib.import_module("lab.commands").COMMANDS
    return (*COMMANDS, *of_laboratory)


def _make_laboratory_importable() -> None:
    """Let this process and those that it starts import `lab`, which an installation lacks.

    Raises ConfigError outside a checkout.
    """
    if REPOSITORY is None or not (REPOSITORY / "lab" / "__init__.py").is_file():
        raise ConfigError(
            "lab is part of the repository, not of an installation; clone bertbench's repository, and run `make setup` "
            "and `.venv/bin/bertbench lab` there"
        )
    root = str(REPOSITORY)
    if root not in sys.path:
        sys.path.insert(0, root)
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in python_path:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, python_path)])


def called_by(words: Sequence[str]) -> Command | None:
    """Return the command that `words` call, if any."""
    for command in callable_by(words):
        if list(words[: len(command.words)]) == command.words:
            return command
    return None
