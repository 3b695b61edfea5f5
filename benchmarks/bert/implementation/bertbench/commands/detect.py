"""`bertbench detect`: the description of the machine at hand, as an MLPerf submission wants it."""

import argparse
import json
import sys
from pathlib import Path

from bertbench.common.errors import ConfigError, system_reason
from bertbench.machine.describe import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write."""
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the description as JSON: MLPerf's 33 fields")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found, and say what wasn't."""
    found = describe()
    text = json.dumps(found, indent=2) + "\n"
    if arguments.out:
        try:
            arguments.out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{arguments.out}: cannot be written ({system_reason(error)}); choose another") from error
    if arguments.json:
        print(text, end="")
    elif not arguments.out:
        for name, value in found.items():
            if value:
                print(f"{name:<36} {value}")
    blank = [name for name, value in found.items() if not value]
    print(f"left blank, for you to fill in: {', '.join(blank)}", file=sys.stderr)
    return 0
