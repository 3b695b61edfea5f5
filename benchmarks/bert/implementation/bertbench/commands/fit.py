"""`bertbench fit`: adapt a system to fewer or smaller devices without changing its training."""

import argparse
import math
from pathlib import Path

from bertbench.commands import check_new_file
from bertbench.commands.init import write_system
from bertbench.common.errors import ConfigError
from bertbench.config import load_system
from bertbench.plan.fit import fit_system


def run(arguments: argparse.Namespace) -> int:
    """Write or print the file; notes go to standard error."""
    limit: float | None = arguments.memory
    if limit is not None and not 0 < limit < math.inf:
        raise ConfigError(f"--memory {limit:g}: expected the GB of a device, above 0")
    check_new_file(arguments.out)
    system = load_system(arguments.system)
    path = arguments.out or Path(f"{system.name}_g{arguments.gpus}.json")
    made, memory_gb = fit_system(system, arguments.gpus, limit, path, arguments.gpu_model)
    content = {
        "gpus": made.system.world_size,
        "local_batch": made.system.local_batch,
        "gradient_accumulation_steps": made.system.parts,
        "global_batch_size": made.system.global_batch_size,
        "memory_gb": round(memory_gb, 6),
    }
    write_system(made, arguments.out, arguments.json, content)
    return 0
