"""Commands about system files: list, show, write and adapt them, and describe this machine."""

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
    add_system,
    add_system_arguments,
    announce,
    check_new_file,
    emit,
    emit_document,
    say,
    system_of,
    write_file,
)
from bertbench.common.errors import ConfigError

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.plan.new_system import NewSystem


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def list_systems(arguments: argparse.Namespace) -> int:
    """Print a line for each of the project's systems."""
    from bertbench.config import load_system, system_names
    from bertbench.config.finetuning_system import left_out

    systems = [load_system(name) for name in system_names()]
    fine_tunes = {system.name: bool(left_out(system)) for system in systems}
    rows = [
        {
            "name": system.name,
            "system": system.name,
            "description": system.description,
            "division": system.hardware.division,
            "ranks": system.world_size,
            "gpus": system.world_size,
            "trains": "finetune squad" if fine_tunes[system.name] else "train",
            "global_batch_size": (system.finetune if fine_tunes[system.name] else system).global_batch_size,
        }
        for system in systems
    ]
    lines = []
    for system in systems:
        ranks = "rank " if system.world_size == 1 else "ranks"
        lines.append(
            f"{system.name:<20} {system.world_size:>5} {ranks}  {system.hardware.division:<6}  {system.description}"
        )
    emit(arguments.json, rows, *lines)
    return 0


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system."""
    add_system_arguments(parser, positional=True)


def show(arguments: argparse.Namespace) -> int:
    """Print a system's resolved configuration and numbers derived from it: JSON, with or without --json."""
    from bertbench.config.finetuning_system import left_out, load_finetuning

    system = system_of(arguments)
    if left_out(system):
        system = load_finetuning(arguments.system, arguments.overrides)
        derived = {"world_size": system.world_size, "global_batch_size": system.global_batch_size}
        emit_document({**system.model_dump(mode="json", by_alias=True), "derived": derived})
        return 0
    derived = {
        "world_size": system.world_size,
        "global_batch_size": system.global_batch_size,
        "local_batch": system.local_batch,
        "evaluation_interval_samples": system.evaluation_interval,
        "max_steps": system.max_steps,
    }
    emit_document({**system.model_dump(mode="json", by_alias=True), "derived": derived})
    return 0


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the output's format and the system."""
    add_flag(
        parser, "--shell",
        "print the file that published submissions source before `sbatch run.sub`, such as config_DGXA100_8x8x48x1.sh",
    )  # fmt: skip
    add_path(parser, "--out", "DIR", "with --shell: write the file into DIR, under its name (default: print it)")
    add_system_arguments(parser, positional=True)


def export(arguments: argparse.Namespace) -> int:
    """Print a system's resolved configuration for other programs: as JSON, with or without --json, or for a shell."""
    system = system_of(arguments)
    if arguments.shell:
        return _export_shell(system, arguments.out, arguments.json)
    if arguments.out is not None:
        raise ConfigError(f"--out {arguments.out}: only with --shell; add that, or redirect the output to a file")
    emit_document(system.model_dump(mode="json", by_alias=True))
    return 0


def _export_shell(system: "System", folder: Path | None, as_json: str) -> int:
    from bertbench.plan.shell_configuration import shell_configuration

    configuration = shell_configuration(system)
    path = None if folder is None else folder / configuration.file_name
    if path is None:
        say(f"these are the contents of {configuration.file_name}; --out DIR writes the file")
    elif path.exists() and path.read_bytes() != configuration.text.encode():
        raise ConfigError(f"{path}: exists with different content; remove it, or name another folder with --out")
    else:
        write_file(path, configuration.text, "--out")
    content = {
        "file_name": configuration.file_name,
        "path": path and str(path),
        "variables": configuration.exports,
    }
    emit(as_json, content, "" if path else configuration.text.rstrip())
    return 0


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the schema is the same for every system."""


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON schema of system files, with or without --json."""
    from bertbench.config.load import schema as schema_text

    print(schema_text(), end="")
    return 0


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster and the source of hyper-parameters."""
    add_number(parser, "--nodes", "N", "nodes of the cluster (default 1)", default=1)
    add_number(parser, "--gpus", "N", "GPUs on each node (default: this machine's number)")
    add_gpu_model(parser, "model of the GPUs (default: this machine's)", any_name=True)
    add_number(parser, "--batch", "N", "global batch size (default: the published one with the shortest estimate)")
    parser.add_argument(
        "--from", dest="origin", metavar="SYSTEM",
        help="copy this system's hyper-parameters (default: those of the published result or reference point nearest "
        "in batch size)",
    )  # fmt: skip
    add_path(
        parser, "--out", "FILE",
        "write FILE, which ends in .json (default: this_machine.json for this machine; a cluster's file is printed)",
    )  # fmt: skip


def init(arguments: argparse.Namespace) -> int:
    """Write a system file for this machine, or write or print one for a cluster; notes go to standard error."""
    describes_cluster = (arguments.gpus, arguments.gpu_model, arguments.batch, arguments.origin) != (None,) * 4
    if arguments.nodes == 1 and not describes_cluster:
        return _init_this_machine(arguments)
    out: Path | None = arguments.out
    check_new_file(out)
    announce(arguments, "comparing known batches")
    from bertbench.config import load_system
    from bertbench.plan.known_points import point_of
    from bertbench.plan.new_system import new_system

    point = point_of(load_system(arguments.origin)) if arguments.origin else None
    path = out or Path(f"cluster_n{arguments.nodes}.json")
    made = new_system(path, arguments.nodes, arguments.gpus, arguments.gpu_model, arguments.batch, point)
    content = {
        "path": out and str(out),
        "division": made.system.hardware.division,
        "system": made.content,
        "notes": made.notes,
    }
    _write_system(made, out, arguments.json, content)
    return 0


def _init_this_machine(arguments: argparse.Namespace) -> int:
    """Write a system file for this machine, and print the commands that use it."""
    announce(arguments, "describing this machine")
    from bertbench.distributed.cores import available_cores
    from bertbench.machine.describe import describe
    from bertbench.machine.gpu_support import torch_architectures
    from bertbench.machine.gpus import present_gpus
    from bertbench.plan.this_machine import FILE, next_commands, system_of_machine

    file: Path = arguments.out or FILE
    check_new_file(file)
    made = system_of_machine(file, present_gpus(), describe(), available_cores(), torch_architectures())
    say(*made.notes)
    write_file(file, json.dumps(made.content, indent=2) + "\n", "--out")
    commands = next_commands(made, file)
    content = {
        "path": str(file),
        "division": made.system.hardware.division,
        "system": made.content,
        "notes": made.notes,
    }
    emit(arguments.json, content)
    say(*commands)
    return 0


def add_scale_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and the devices."""
    add_system(parser)
    add_number(parser, "--gpus", "N", "total number of devices, or of ranks of a CPU system", required=True)
    add_gpu_model(parser, "model of the devices (default: the system file's)")
    parser.add_argument(
        "--memory", type=float, metavar="GB",
        help="memory of each device, for example of a model that isn't listed (default: the model's, or the system "
        "file's)",
    )  # fmt: skip
    add_path(parser, "--out", "FILE", "write FILE, which ends in .json (default: print it)")
    parser.set_defaults(overrides=[])  # the new file extends a system, without overrides


def scale(arguments: argparse.Namespace) -> int:
    """Write or print a file that adapts a system to fewer or smaller devices; notes go to standard error."""
    system = system_of(arguments)
    announce(arguments, "counting memory")
    from bertbench.plan.fit import fit_system

    limit: float | None = arguments.memory
    if limit is not None and not 0 < limit < math.inf:
        raise ConfigError(f"--memory {limit:g}: expected the memory of a device in GB, above 0")
    check_new_file(arguments.out)
    path = arguments.out or Path(f"{system.name}_g{arguments.gpus}.json")
    made, memory_gb = fit_system(system, arguments.gpus, limit, path, arguments.gpu_model)
    content = {
        "gpus": made.system.world_size,
        "local_batch": made.system.local_batch,
        "gradient_accumulation_steps": made.system.parts,
        "global_batch_size": made.system.global_batch_size,
        "memory_gb": round(memory_gb, 6),
    }
    _write_system(made, arguments.out, arguments.json, content)
    return 0


def _write_system(made: "NewSystem", out: Path | None, as_json: str, content: object) -> None:
    """Write or print a new system's file, or print `content` as JSON; also print the notes for its user."""
    text = json.dumps(made.content, indent=2) + "\n"
    say(*made.notes)
    if out is None:
        say(f"nothing was written; --out {made.system.hardware.system_name}.json writes the file that the notes name")
    else:
        write_file(out, text, "--out")
        say(f"next: bertbench plan {out}, then bertbench launch {out} --dry-run")
    emit(as_json, content, "" if out else text.rstrip())


def add_env_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def env(arguments: argparse.Namespace) -> int:
    """Describe this machine for an MLPerf submission, and list the fields that detection left blank."""
    from bertbench.distributed.cores import allowed_cores, available_cores, quota_cores
    from bertbench.machine.describe import describe

    description = describe()
    emit(arguments.json, description, *(f"{name:<36} {value}" for name, value in description.items() if value))
    blank = [name for name, value in description.items() if not value]
    say(f"left blank, for you to fill in: {', '.join(blank)}")
    quota = quota_cores()
    limit = "no CPU quota" if quota is None else f"CPU quota of the control group: {quota:g}"
    say(f"cores that ranks on this machine share: {available_cores()} (allowed: {allowed_cores()}; {limit})")
    return 0
