"""`bertbench show SYSTEM`: the configuration as a run sees it, and the numbers that follow from it."""

import argparse
import sys

from bertbench.commands import SYSTEM_HELP, add_system_arguments, emit
from bertbench.config import System, load_system
from bertbench.config.load import schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A system, or the schema of all."""
    parser.add_argument("system", nargs="?", help=SYSTEM_HELP)
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of system files instead")
    add_system_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print JSON; standard output holds nothing else, with or without --json."""
    if arguments.schema:
        print(schema(), end="")
        return 0
    if arguments.system is None:
        print("bertbench show: give a SYSTEM; `bertbench systems` lists them", file=sys.stderr)
        return 2
    system = load_system(arguments.system, arguments.overrides)
    emit(True, {**system.model_dump(mode="json", by_alias=True), "derived": derived(system)})
    return 0


def derived(system: System) -> dict[str, int]:
    """Numbers that nobody types: they follow from the system file."""
    return {
        "world_size": system.world_size,
        "global_batch_size": system.global_batch_size,
        "local_batch": system.local_batch,
        "evaluation_interval_samples": system.evaluation_interval,
        "max_steps": system.max_steps,
    }
