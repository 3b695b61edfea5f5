"""Write a system file for a user's cluster, from shipped base files, the machine's description and known settings."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject
from bertbench.config import System
from bertbench.config.load import gpu_card, gpu_models, system_from
from bertbench.config.settings import nearest_multiples
from bertbench.machine.describe import describe
from bertbench.plan.dry_run import dry_run
from bertbench.plan.estimate import estimate_run
from bertbench.plan.known_points import KnownPoint, known_points, nearest_point
from bertbench.plan.memory import capacity_gb, needed_gb

_SPARE = 2  # factor on the estimate: nine of ten estimates of published results are off by less than 1.6 times
_INIT_MINUTES = 10
_WIDELY_PUBLISHED = "NVIDIA A100-SXM4-80GB"  # compares batches for a GPU without published results
_SOFTWARE = ("framework", "other_software_stack", "operating_system")


class NewSystem(NamedTuple):
    """The content of a system file, the system that it defines, and notes for its user."""

    content: JsonObject
    system: System
    notes: list[str]


def new_system(
    path: Path, nodes: int, gpus: int | None, gpu_model: str | None, batch: int | None, point: KnownPoint | None
) -> NewSystem:
    """Return a valid system in a file at `path`, with the hyper-parameters of `point` or of the nearest known point.

    `gpus` is the number on each node, and `gpu_model` is a card of `gpu_models` or any other name; None means those of
    this machine. If no batch is given, it is that of `point`, or else of the known point with the shortest estimate.
    Raises ConfigError if the cluster isn't fully described, or if no batch divides among its GPUs.
    """
    card, node, notes = _machine(gpus, gpu_model)
    ranks = nodes * node["accelerators_per_node"]
    hardware = {"system_name": path.stem, "number_of_nodes": nodes, **node}
    points = known_points() if point is None else {point.batch: point}
    dividing = [known for known in points.values() if known.batch % ranks == 0]
    if batch is None and not dividing:
        raise ConfigError(
            f"no known batch ({', '.join(map(str, sorted(points)))}) is a multiple of {ranks} GPUs; choose another "
            f"with --batch, such as {nearest_multiples(max(points), ranks)}"
        )
    chosen = dividing if batch is None else [nearest_point(batch, points)]
    return _finished(_fastest(path, [_content(card, hardware, point) for point in chosen]), path, notes)


def _fastest(path: Path, contents: list[JsonObject]) -> JsonObject:
    """Return the content whose system trains fastest among those that fit, or among all if none fits."""
    systems = [system_from(path, content) for content in contents]
    fitting = [number for number, system in enumerate(systems) if _fits(system)]
    numbers = fitting or range(len(systems))
    return contents[min(numbers, key=lambda number: _minutes(systems[number]))]


def estimated_walltime(system: System) -> int | None:
    """Return the minutes to request from a scheduler; None without published results on the system's GPUs."""
    minutes = estimate_run(system).minutes
    return None if minutes is None else 5 * math.ceil((_SPARE * minutes + _INIT_MINUTES) / 5)


def _machine(gpus: int | None, gpu_model: str | None) -> tuple[str, JsonObject, list[str]]:
    """Return the card's base file, the part of the hardware section that describes a node, and notes about it."""
    described = describe()
    here = int(described["accelerators_per_node"] or 0)
    if not here and (gpus is None or gpu_model is None):
        raise ConfigError(
            "found no GPU on this machine; give --gpus, the number on each node, and "
            f"--gpu-model: {', '.join(gpu_models())} or another name"
        )
    gpus = gpus or here
    notes = []
    hardware: JsonObject = {"accelerators_per_node": gpus}
    card = gpu_card(gpu_model or "")
    if card and card != gpu_model:
        notes.append(f"--gpu-model {gpu_model}: understood as {card}")
    if gpu_model and not card:
        hardware["accelerator_model_name"] = gpu_model
        notes.append(f"--gpu-model {gpu_model}: the project doesn't know this card; fill in hardware.accelerator_*")
    if here == gpus:
        read_here: tuple[str, ...] = ("host_", *_SOFTWARE)
        if gpu_model is None:
            read_here += ("accelerator_",)
        hardware |= {name: value for name, value in described.items() if value and name.startswith(read_here)}
        notes.append("hardware: read from this machine")
    else:
        notes.append(
            f"hardware: this machine has {here} GPUs, not {gpus}, so processors, memory and network are left blank; "
            "run `bertbench config init` on a node of the cluster, or fill them in"
        )
    return f"base/gpu_{card.replace('-', '_')}" if card else "base/gpu", hardware, notes


def _content(card: str, hardware: JsonObject, point: KnownPoint) -> JsonObject:
    nodes, gpus = hardware["number_of_nodes"], hardware["accelerators_per_node"]
    return {
        "extends": ["base/bert_large", card, point.base],
        "description": f"{nodes * gpus} GPUs on {nodes} {'node' if nodes == 1 else 'nodes'}",
        "source": point.source,
        **point.settings,
        "hardware": {**hardware, **point.settings.get("hardware", {})},
        "launch": {"ranks_per_node": gpus},
        "data": {"global_batch_size": point.batch},
    }


def _fits(system: System) -> bool:
    return needed_gb(system) <= capacity_gb(system)


def _minutes(system: System) -> float:
    minutes = estimate_run(system).minutes
    if minutes is not None:
        return minutes
    hardware = system.hardware.model_copy(update={"accelerator_model_name": _WIDELY_PUBLISHED})
    compared = estimate_run(system.model_copy(update={"hardware": hardware})).minutes
    assert compared is not None
    return compared


def accumulating(path: Path, content: JsonObject, least: int = 1) -> Iterator[System]:
    """Yield the system of a file with its samples in `least` or more equal parts; update `content` accordingly."""
    samples = system_from(path, content).local_batch
    for parts in range(least, samples + 1):
        if samples % parts == 0:
            content["data"]["gradient_accumulation_steps"] = parts
            yield system_from(path, content)


def _finished(content: JsonObject, path: Path, notes: list[str]) -> NewSystem:
    """Add accumulation until the system fits, a time limit, and notes about division, batch and memory."""
    for system in accumulating(path, content):
        if _fits(system) and dry_run(system, rank=0).memory_gb_per_gpu <= capacity_gb(system):
            break
    else:
        notes.append(f"memory: not even one sample at a time fits; `bertbench estimate {path} --layouts` lists ways")
    if capacity_gb(system) == math.inf:
        notes.append(f"memory: set hardware.accelerator_memory_capacity, so that `bertbench plan {path}` can check it")
    if system.parts == 1:
        del content["data"]["gradient_accumulation_steps"]
    minutes = estimated_walltime(system)
    if minutes is None:
        notes.append("estimate: no published result on this GPU, so launch.walltime_minutes is 60; set it")
    else:
        content["launch"]["walltime_minutes"] = minutes
    system = system_from(path, content)
    division = system.hardware.division
    if division == "closed":
        reason = "LAMB, no model parallelism, a published batch size"
    elif system.source.startswith("UNTESTED"):
        reason = "no published result or reference point has this batch"
    else:
        reason = "ADAM is for the open division"
    notes += [f"hyper-parameters: {system.source}", f"division: {division} ({reason})"]
    return NewSystem(content, system, notes)
