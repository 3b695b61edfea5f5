"""`bertbench init`: write a system file for a cluster from a short description."""

import argparse
import json
import sys
from pathlib import Path

from bertbench.commands import check_at_least_one, check_new_file, emit, write_file
from bertbench.config import load_system
from bertbench.dry_run.new_system import Cluster, new_system
from bertbench.dry_run.points import point_of


def run(arguments: argparse.Namespace) -> int:
    """Write or print the file; notes go to standard error."""
    check_at_least_one(arguments, "nodes", "gpus", "batch")
    out: Path | None = arguments.out
    check_new_file(out)
    given = load_system(arguments.origin) if arguments.origin else None
    model = arguments.gpu_model or "gpu"
    name = out.stem if out else f"{model.lower().replace('-', '_').replace(' ', '_')}_n{arguments.nodes}"
    cluster = Cluster(name, arguments.nodes, arguments.gpus, arguments.gpu_model)
    made = new_system(cluster, arguments.batch, point_of(given) if given else None)
    text = json.dumps(made.content, indent=2) + "\n"
    if out is not None:
        write_file(out, text, "--out")
    file = str(out or f"{name}.json")
    for note in made.notes:
        print(note.replace("FILE", file), file=sys.stderr)
    if out is not None:
        print(f"next: bertbench plan {out}, then bertbench launch {out} --dry-run", file=sys.stderr)
    division = made.system.hardware.division
    content = {"path": out and str(out), "division": division, "system": made.content, "notes": made.notes}
    emit(arguments.json, content, "" if out else text.rstrip())
    return 0
