"""Make the system of a benchmark's run, without a system file."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertbench.config import System
from bertbench.config.load import system_from
from bertbench.config.sections import Model
from bertbench.model.shape import BertShape

_WARMUP_STEPS = 10


def short_run(
    shape: BertShape, local_batch: int, ranks: int, device: str, steps: int, settings: Iterable[str]
) -> System:
    """Return the system of a run of `steps` steps on one node; `settings`, as in --set, name optimizer and rate."""
    return system_from(
        Path("short_run.json"),
        {
            "hardware": {
                "division": "open",
                "status": "Research, Development, or Internal (RDI)",
                "system_name": "bench",
                "number_of_nodes": 1,
                "accelerators_per_node": ranks if device == "cuda" else 0,
            },
            "launch": {"ranks_per_node": ranks, "device": device},
            "model": model_section(shape),
            "data": {"path": "none", "global_batch_size": local_batch * ranks},
            "schedule": {"max_steps": steps, "warmup_steps": min(_WARMUP_STEPS, steps), "decay_steps": 2 * steps},
        },
        settings,
    )


def model_section(shape: BertShape) -> dict[str, Any]:
    """Return the section of a system file for a model of `shape`."""
    return {name: value for name, value in asdict(shape).items() if name in Model.model_fields}
