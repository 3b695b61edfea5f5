"""Commands before the first run: system files, this machine, and how long a run will take."""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from bertbench.cli.arguments import (
    add_flag,
    add_gpu_model,
    add_number,
    add_path,
    add_system_arguments,
    announce,
    check_new_file,
    emit,
    emit_document,
    say,
    say_unread,
    system_of,
    write_file,
)
from bertbench.common.errors import ConfigError
from bertbench.common.reads import Reads, Unread

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.plan.new_system import NewSystem

_OF_A_RUN = (
    "name", "description", "source", "task", "hardware", "scale_from_batch", "scale_rule",
    "launch.ranks_per_node", "launch.device", "model",
    "data.global_batch_size", "data.local_batch", "data.gradient_accumulation_steps",
)  # fmt: skip
_OFF_THE_CLOCK = ("launch", "data.path", "data.eval_path", "data.recipe", "checkpoint", "squad")
"""Where and how a run starts doesn't change its time on the clock, so these are accepted without effect."""

ESTIMATE = Reads(
    "estimate",
    sections=(
        *_OF_A_RUN,
        *_OFF_THE_CLOCK,
        "optimizer.learning_rate", "optimizer.beta1", "optimizer.beta2",
        "schedule.max_steps", "schedule.warmup_steps", "schedule.start_warmup_step",
        "parallel.schedule",
    ),
    exceptions={
        "parallel": Unread(
            "published runs hold whole models; `bertbench estimate --layouts` compares layouts", accepted=(1, False)
        ),
    },
    others=Unread("the estimate doesn't depend on it; leave it out"),
)  # fmt: skip
ESTIMATE_LAYOUTS = Reads(
    "estimate --layouts",
    sections=(
        *_OF_A_RUN,
        *_OFF_THE_CLOCK,
        "precision",
        "optimizer.name",
        "optimizer.sharded",
        "communication",
    ),
    exceptions={
        "parallel": Unread("it lists every layout; leave it out"),
        "data.balance": Unread(
            "it counts the load of every layout as data.balance planned gives it", accepted=("planned",)
        ),
        "precision.compute": Unread("it counts products in 16 bits", accepted=("bf16", "fp16")),
    },
    others=Unread("the list of layouts doesn't depend on it; leave it out"),
)


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def list_systems(arguments: argparse.Namespace) -> int:
    """Print a line for each of the project's systems."""
    from bertbench.config import load_system, system_names

    systems = [load_system(name) for name in system_names()]
    rows = [
        {
            "system": system.name,
            "description": system.description,
            "division": system.hardware.division,
            "gpus": system.world_size,
            "trains": "finetune squad" if system.task == "squad" else "train",
            "global_batch_size": system.global_batch_size,
        }
        for system in systems
    ]
    lines = []
    for system in systems:
        ranks = "rank " if system.world_size == 1 else "ranks"
        lines.append(
            f"{system.name:<20} {system.world_size:>5} {ranks}  {system.hardware.division:<6}  {system.description}"
        )
    emit(arguments, rows, *lines)
    return 0


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system."""
    add_system_arguments(parser, Reads("config show", task=None), positional=True)


def show(arguments: argparse.Namespace) -> int:
    """Print a system's resolved configuration and numbers derived from it: JSON, with or without --json."""
    from bertbench.finetune.squad_system import as_fine_tuned

    system = system_of(arguments)
    derived = {"world_size": system.world_size, "global_batch_size": system.global_batch_size}
    if system.task == "squad":
        system = as_fine_tuned(system)
    else:
        derived["local_batch"] = system.local_batch
        derived["evaluation_interval_samples"] = system.evaluation_interval
        derived["max_steps"] = system.max_steps
    emit_document({**system.model_dump(mode="json", by_alias=True), "derived": derived})
    return 0


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the schema is the same for every system."""


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON schema of system files, with or without --json."""
    from bertbench.config.load import schema as schema_text

    print(schema_text(), end="")
    return 0


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the nodes, their GPUs and the source of hyper-parameters."""
    add_number(parser, "--nodes", "N", "nodes of the cluster (default: 1)", default=1)
    add_number(parser, "--gpus", "N", "GPUs on each node (default: this machine's number)")
    add_gpu_model(parser, "model of the GPUs (default: this machine's)", any_name=True)
    parser.add_argument(
        "--memory", type=float, metavar="GB",
        help="memory of a GPU, for a model that isn't listed (default: the model's, or this machine's)",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="origin", metavar="SYSTEM",
        help="take this system's hyper-parameters and global batch (default: the closed dgx system with the nearest "
        "number of GPUs)",
    )  # fmt: skip
    add_path(
        parser, "--out", "FILE",
        "write FILE, which ends in .json (default: this_machine.json, or cluster.json where an option names GPUs or "
        "nodes)",
    )  # fmt: skip


def init(arguments: argparse.Namespace) -> int:
    """Write a system file for this machine, or for named nodes and GPUs, and print the commands that use it."""
    names_gpus = arguments.nodes > 1 or (arguments.gpus, arguments.gpu_model) != (None, None)
    file: Path = arguments.out or Path("cluster.json" if names_gpus else "this_machine.json")
    check_new_file(file)
    memory_gb: float | None = arguments.memory
    if memory_gb is not None and not 0 < memory_gb < math.inf:
        raise ConfigError(f"--memory {memory_gb:g}: expected the memory of a GPU in GB, above 0")
    announce(arguments, "describing the machine, and counting memory")
    from bertbench.plan.new_system import next_commands

    made = _new_system(arguments, file)
    say(*made.notes)
    write_file(file, json.dumps(made.content, indent=2) + "\n", "--out")
    content = {
        "path": str(file),
        "division": made.system.hardware.division,
        "system": made.content,
        "notes": made.notes,
    }
    emit(arguments, content)
    say(*next_commands(made, file))
    return 0


def _new_system(arguments: argparse.Namespace, file: Path) -> "NewSystem":
    """Return the system that the options ask for. Raises ConfigError if neither they nor this machine tell the GPUs."""
    from bertbench.config import load_system
    from bertbench.config.load import gpu_models
    from bertbench.distributed.cores import available_cores
    from bertbench.launch.submission_name import shipped_for
    from bertbench.machine.describe import describe
    from bertbench.machine.gpu_support import torch_architectures
    from bertbench.machine.gpus import present_gpus
    from bertbench.plan.new_system import demo_system, gpus_here, named_gpus, new_system, published_system

    options = (arguments.gpus, arguments.gpu_model, arguments.memory, arguments.origin)
    asks_for_gpus = arguments.nodes > 1 or any(option is not None for option in options)
    present = present_gpus()
    number: int | None = arguments.gpus or len(present) or None
    if arguments.gpu_model and number:
        gpus = named_gpus(arguments.gpu_model, number)
    elif present:
        gpus = gpus_here(present, arguments.gpus, describe(), torch_architectures())
    elif asks_for_gpus:
        raise ConfigError(
            "found no GPU on this machine; give --gpus, the number on each node, and "
            f"--gpu-model: {', '.join(gpu_models())} or another name"
        )
    else:
        return demo_system(file, describe(), available_cores())
    ranks = arguments.nodes * gpus.number
    origin = load_system(shipped_for(arguments.origin, ())) if arguments.origin else published_system(ranks)
    return new_system(file, arguments.nodes, gpus, arguments.memory, origin)


def add_env_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def env(arguments: argparse.Namespace) -> int:
    """Describe this machine for an MLPerf submission, and list the fields that detection left blank."""
    from bertbench.distributed.cores import allowed_cores, available_cores, quota_cores
    from bertbench.machine.describe import describe

    description = describe()
    emit(arguments, description, *(f"{name:<36} {value}" for name, value in description.items() if value))
    blank = [name for name, value in description.items() if not value]
    say(f"left blank, for you to fill in: {', '.join(blank)}")
    quota = quota_cores()
    limit = "no CPU quota" if quota is None else f"CPU quota of the control group: {quota:g}"
    say(f"cores that ranks on this machine share: {available_cores()} (allowed: {allowed_cores()}; {limit})")
    return 0


def add_estimate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and whether to compare its layouts."""
    add_flag(
        parser, "--layouts",
        "list every parallel layout of the system's GPUs with its memory and the least time of a step, for any size of "
        "BERT",
    )  # fmt: skip
    add_system_arguments(parser, ESTIMATE, positional=True)


def estimate(arguments: argparse.Namespace) -> int:
    """Estimate the time to train from published results, or list the system's layouts."""
    reads = ESTIMATE_LAYOUTS if arguments.layouts else ESTIMATE
    system = system_of(arguments, reads)
    say_unread(system, reads)
    if arguments.layouts:
        return _print_layouts(system, arguments)
    announce(arguments, "reading published results")
    from bertbench.plan.estimate import estimate_json, estimate_lines, estimate_run

    estimated = estimate_run(system)
    emit(arguments, estimate_json(estimated), *estimate_lines(estimated))
    return 0


def _print_layouts(system: "System", arguments: argparse.Namespace) -> int:
    announce(arguments, "counting memory and steps of every layout")
    from bertbench.plan.layouts import layout_listing

    layouts, lines = layout_listing(system)
    emit(arguments, {"system": arguments.system, **layouts}, *lines)
    return 0
