"""`bertbench detect`: describe this machine for an MLPerf submission."""

import argparse
import json

from bertbench.commands import add_path, emit, say, write_file
from bertbench.machine.describe import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file to write."""
    add_path(parser, "--out", "FILE", "write the description as JSON: MLPerf's 33 fields")


def run(arguments: argparse.Namespace) -> int:
    """Print the description, and list the fields that detection left blank."""
    found = describe()
    if arguments.out:
        write_file(arguments.out, json.dumps(found, indent=2) + "\n", "--out")
    lines = [] if arguments.out else [f"{name:<36} {value}" for name, value in found.items() if value]
    emit(arguments.json, found, *lines)
    blank = [name for name, value in found.items() if not value]
    say(f"left blank, for you to fill in: {', '.join(blank)}")
    return 0
