"""`bertbench init`: write a system file for a cluster from a short description."""

import argparse
import json
from pathlib import Path

from bertbench.commands import check_new_file, emit, say, write_file
from bertbench.config import load_system
from bertbench.plan.known_points import point_of
from bertbench.plan.new_system import NewSystem, new_system


def run(arguments: argparse.Namespace) -> int:
    """Write or print the file; notes go to standard error."""
    out: Path | None = arguments.out
    check_new_file(out)
    given = point_of(load_system(arguments.origin)) if arguments.origin else None
    path = out or Path(f"cluster_n{arguments.nodes}.json")
    made = new_system(path, arguments.nodes, arguments.gpus, arguments.gpu_model, arguments.batch, given)
    division = made.system.hardware.division
    content = {"path": out and str(out), "division": division, "system": made.content, "notes": made.notes}
    write_system(made, out, arguments.json, content)
    return 0


def write_system(made: NewSystem, out: Path | None, as_json: bool, content: object) -> None:
    """Write or print a new system's file, or print `content` as JSON; say what its user should know."""
    text = json.dumps(made.content, indent=2) + "\n"
    say(*made.notes)
    if out is None:
        say(f"nothing was written; --out {made.system.hardware.system_name}.json writes the file that the notes name")
    else:
        write_file(out, text, "--out")
        say(f"next: bertbench plan {out}, then bertbench launch {out} --dry-run")
    emit(as_json, content, "" if out else text.rstrip())
