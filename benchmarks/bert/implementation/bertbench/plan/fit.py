"""Adapt a system to other devices: keep global batch and hyper-parameters, and accumulate until each part fits.

Memory is counted as by `bertbench plan`. An estimate without the backward pass finds the number of parts, and a dry run
of rank 0 confirms it.
"""

import math
import os
from pathlib import Path

from bertbench.balance.plan import STRATIFIED
from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject
from bertbench.config import System
from bertbench.config.load import system_from
from bertbench.config.settings import nearest_multiples
from bertbench.plan.dry_run import dry_run
from bertbench.plan.estimate import trains_bert_large
from bertbench.plan.memory import capacity_gb, needed_gb
from bertbench.plan.new_system import NewSystem, accumulating, estimated_walltime


def fit_system(
    system: System, gpus: int, limit_gb: float | None, path: Path, card: str | None
) -> tuple[NewSystem, float]:
    """Return a system for `gpus` devices that extends `system` in a file at `path`, and the memory it needs in GB.

    `card` is one of `gpu_models`; None means the system's own. `limit_gb` is a device's memory; None takes it from the
    card. If the card doesn't state it either, a part gets at most as many samples as before. The batch is split into
    the fewest parts that fit. Raises ConfigError if the batch doesn't divide among the devices, or if not even one
    sample at a time fits.
    """
    nodes, ranks = _machine(system, gpus)
    content = _content(system, path, nodes, ranks, limit_gb)
    if card is not None:
        content["extends"] = [content["extends"], f"base/gpu_{card.replace('-', '_')}"]
    in_one_part = system_from(path, content)
    capacity = capacity_gb(in_one_part) if limit_gb is None else limit_gb
    fewest_parts = 1
    if capacity == math.inf:
        fewest_parts = -(-in_one_part.local_batch // system.samples_per_pass)
    made, needed = in_fewest_parts(path, content, capacity, fewest_parts)
    if needed > capacity:
        option = f"--gpus {gpus}" if limit_gb is None else f"--memory {limit_gb:g}"
        raise ConfigError(
            f"{option}: {system.name} needs {needed:.3g} GB on each device even with one sample at a time, but a "
            f"device has {capacity:g} GB; use larger devices, or split the model: `bertbench estimate "
            f"{system.argument} --layouts` lists ways"
        )
    minutes = estimated_walltime(made) if trains_bert_large(made) else None
    if minutes is None:  # keep the product of devices and minutes
        minutes = max(1, math.ceil(system.launch.walltime_minutes * system.world_size / made.world_size))
    content["launch"]["walltime_minutes"] = minutes
    return NewSystem(content, system_from(path, content), _notes(system, made)), needed


def in_fewest_parts(path: Path, content: JsonObject, capacity: float, least: int = 1) -> tuple[System, float]:
    """Return the system of `content` in the fewest parts, at least `least`, that fit `capacity`, and its memory in GB.

    The number of parts is also written to `content`. If not even one sample at a time fits, the returned memory is
    larger than `capacity`, which is in GB.
    """
    for made in accumulating(path, content, least):
        needed = needed_gb(made)
        if needed <= capacity:
            needed = dry_run(made, 0).memory_gb_per_gpu
            if needed <= capacity:
                break
    return made, needed


def _machine(system: System, gpus: int) -> tuple[int, int]:
    """Return the number of nodes, and of devices on each. Raises ConfigError if nodes or batch don't divide evenly."""
    of_node = system.launch.ranks_per_node
    if gpus > of_node and gpus % of_node:
        raise ConfigError(
            f"--gpus {gpus}: the nodes of {system.name} have {of_node} each; choose at most {of_node}, or a multiple: "
            f"{nearest_multiples(gpus, of_node)}"
        )
    batch = system.global_batch_size
    data_ranks = gpus // system.parallel.tensor
    if data_ranks and batch % data_ranks:
        raise ConfigError(
            f"--gpus {gpus}: the global batch of {system.name}, {batch}, isn't a multiple of {data_ranks} "
            "data-parallel ranks; choose a number that divides it"
        )
    return (1, gpus) if gpus <= of_node else (gpus // of_node, of_node)


def _content(system: System, path: Path, nodes: int, ranks: int, limit_gb: float | None) -> JsonObject:
    devices = "GPU" if system.launch.device == "cuda" else "rank"
    if nodes * ranks > 1:
        devices += "s"
    hardware: JsonObject = {"system_name": path.stem, "number_of_nodes": nodes}
    if system.launch.device == "cuda":
        hardware["accelerators_per_node"] = ranks
        if limit_gb is not None:
            hardware["accelerator_memory_capacity"] = f"{limit_gb:g} GB"
    extended = system.name
    if system.argument != system.name:  # the path to its file, relative to the new file's folder, without .json
        extended = os.path.relpath(Path(system.argument).with_suffix(""), path.parent)
    data: JsonObject = {"global_batch_size": system.global_batch_size, "local_batch": None}
    if system.data.strata_quotas is not None and system.data.balance in STRATIFIED:
        data["strata_quotas"] = _quotas(system, system.data.strata_quotas, nodes * ranks)
    return {
        "extends": extended,
        "description": f"{system.name} on {nodes * ranks} {devices}: the same global batch and hyper-parameters",
        "hardware": hardware,
        "launch": {"ranks_per_node": ranks},
        "data": data,
    }


def _quotas(system: System, quotas: tuple[int, ...], gpus: int) -> list[int]:
    """Return quotas with which `gpus` devices draw the same global batch. Raises ConfigError if there are none."""
    data_ranks = gpus // (system.parallel.tensor * system.parallel.pipeline)
    of_all_ranks = [quota * system.layout.data for quota in quotas]
    if any(samples % data_ranks for samples in of_all_ranks):
        raise ConfigError(
            f"--gpus {gpus}: {system.name} draws {', '.join(map(str, of_all_ranks))} samples from its strata in a step "
            f"(data.strata_quotas), which don't divide among {data_ranks} data-parallel ranks; choose another number"
        )
    return [samples // data_ranks for samples in of_all_ranks]


def _notes(before: System, after: System) -> list[str]:
    """Return notes: whether the division still holds, and which parts of the losses depend on the number of ranks."""
    if after.hardware.division == "closed":
        legal = "legal: batch and hyper-parameters are the same, and accumulation may be chosen freely"
    else:
        legal = f"as {before.name}"
    return [
        f"division: {after.hardware.division}, {legal}",
        "hardware: copied from the original system, except the number of devices; `bertbench env` prints yours",
        "losses: equal up to rounding, unless they depend on ranks or parts: dropout masks, loss.normalize rank, "
        "clip.mode before and bucket, data.balance planned_local and packed",
    ]
