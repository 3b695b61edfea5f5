"""`bertbench lab optimizer`: optimizers by samples and seconds to target, tuned alike, in one process."""

import argparse

import torch

from bertbench.commands import aligned, check_at_least_one, emit, write_file
from bertbench.common.errors import ConfigError
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from lab.commands import study
from lab.paths import STUDIES
from lab.study.definition import read_study
from lab.study.optimizer import OptimizerStudy
from lab.study.optimizer_compare import Findings
from lab.study.optimizer_definition import OptimizerDefinition
from lab.study.optimizer_page import ARM_HEAD, LIMITS, POOLED_HEAD, RULE, arm_rows, page_of, pooled_rows
from lab.study.optimizer_seconds import step_seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition and the folder."""
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of every arm, side by side (default 10)")
    study.add_folder_arguments(parser, "study_optimizer")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    check_at_least_one(arguments, "seeds")
    if arguments.seeds == 1:
        raise ConfigError("--seeds 1: expected at least 2, since intervals are taken over the seeds")
    study.check_optuna()
    definition = read_study(arguments.definition or STUDIES / "optimizer.json", OptimizerDefinition)
    definition = definition.model_copy(update={"seeds": arguments.seeds or definition.seeds})
    folder = arguments.out or runs_folder() / "study_optimizer"
    torch.set_num_threads(1)  # the models are tiny: more threads cost more than they compute
    with Progress() as progress:
        trials = OptimizerStudy(definition, folder, progress)
        seconds = step_seconds(definition, trials.journal, progress)
        results = trials.results()
    findings = Findings(results, definition.target, seconds, definition.ema_windows)
    page = page_of(definition, trials, results, findings, f"one thread of {processor()}")
    write_file(folder / "study.html", page, "--out")
    content = {
        "definition": definition.model_dump(mode="json"),
        "origin": trials.journal.origins[-1],
        "origins": trials.journal.origins,
        "rule": RULE,
        "limits": LIMITS,
        "pooled": findings.pooled,
        "arms": findings.summaries,
        "comparisons": findings.comparisons,
        "rows": findings.rows,
    }
    tables = (aligned(POOLED_HEAD, pooled_rows(findings.pooled)), aligned(ARM_HEAD, arm_rows(findings.summaries)))
    emit(arguments.json, content, "\n\n".join(tables))
    return 0
