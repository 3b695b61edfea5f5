"""`bertbench detect`: describe this machine for an MLPerf submission."""

import argparse

from bertbench.commands import emit, say
from bertbench.distributed.affinity import allowed_cores, available_cores
from bertbench.distributed.quota import quota_cores
from bertbench.machine.describe import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print the description, and list the fields that detection left blank."""
    found = describe()
    emit(arguments.json, found, *(f"{name:<36} {value}" for name, value in found.items() if value))
    blank = [name for name, value in found.items() if not value]
    say(f"left blank, for you to fill in: {', '.join(blank)}")
    quota = quota_cores()
    limit = "no quota of time" if quota is None else f"quota of the control group: {quota:g}"
    say(f"cores that ranks here share: {available_cores()} (allowed: {allowed_cores()}; {limit})")
    return 0
