"""`bertbench fit`: adapt a system to fewer or smaller devices without changing its training."""

import argparse
import json
import math
import sys
from pathlib import Path

from bertbench.commands import check_at_least_one, check_new_file, emit, write_file
from bertbench.common.errors import ConfigError
from bertbench.config import load_system
from bertbench.dry_run.fit import fit


def run(arguments: argparse.Namespace) -> int:
    """Write or print the file; notes go to standard error."""
    check_at_least_one(arguments, "gpus")
    limit: float | None = arguments.memory
    if limit is not None and not 0 < limit < math.inf:
        raise ConfigError(f"--memory {limit:g}: expected the GB of a device, above 0")
    out: Path | None = arguments.out
    check_new_file(out)
    system = load_system(arguments.system)
    made = fit(system, arguments.gpus, limit, out or Path(f"{system.name}_g{arguments.gpus}.json"), arguments.gpu_model)
    text = json.dumps(made.content, indent=2) + "\n"
    if out is not None:
        write_file(out, text, "--out")
    for note in made.notes:
        print(note, file=sys.stderr)
    if out is not None:
        print(f"next: bertbench plan {out}, then bertbench launch {out} --dry-run", file=sys.stderr)
    content = {
        "gpus": made.system.world_size,
        "local_batch": made.system.local_batch,
        "gradient_accumulation_steps": made.system.parts,
        "global_batch_size": made.system.global_batch_size,
        "memory_gb": round(made.memory_gb, 6),
    }
    emit(arguments.json, content, "" if out else text.rstrip())
    return 0
