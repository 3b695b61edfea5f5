"""`bertbench show SYSTEM`: print the resolved configuration of a run, and numbers derived from it."""

import argparse

from bertbench.commands import SYSTEM_HELP, add_flag, add_system_arguments, emit, system_of
from bertbench.common.errors import ConfigError
from bertbench.config.load import schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and the schema option."""
    parser.add_argument("system", nargs="?", help=SYSTEM_HELP)
    add_flag(parser, "--schema", "print the JSON schema of system files instead")
    add_system_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print only JSON on standard output, with or without --json."""
    if arguments.schema:
        if arguments.system or arguments.overrides:
            raise ConfigError("--schema is the same for every system; leave SYSTEM and --set out")
        print(schema(), end="")
        return 0
    if arguments.system is None:
        raise ConfigError("show: found no SYSTEM; give one that `bertbench systems` lists")
    system = system_of(arguments)
    derived = {
        "world_size": system.world_size,
        "global_batch_size": system.global_batch_size,
        "local_batch": system.local_batch,
        "evaluation_interval_samples": system.evaluation_interval,
        "max_steps": system.max_steps,
    }
    emit(True, {**system.model_dump(mode="json", by_alias=True), "derived": derived})
    return 0
