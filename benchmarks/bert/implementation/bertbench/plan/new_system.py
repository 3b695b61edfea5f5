"""Write a system file for this machine, or for named nodes and GPUs.

The file takes its hyper-parameters and its global batch from another system. Each GPU works through its share of the
batch in the fewest parts that fit its memory, counted as by `bertbench plan`. Without GPUs, the file trains the demo.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject
from bertbench.config import System, load_system, system_names
from bertbench.config.load import gpu_card, system_from
from bertbench.config.optimizer import MOST_SUMMED_RANKS, Compression
from bertbench.machine.gpu_support import unsupported
from bertbench.machine.gpus import PresentGpu
from bertbench.model.format_needs import BF16_CAPABILITY
from bertbench.plan.estimate import trains_bert_large
from bertbench.plan.memory import capacity_gb, memory_gb, needed_gb
from bertbench.plan.planned_steps import first_steps

DEMO = "cpu_demo"
_PUBLISHED = "dgx"  # the names of systems with published hyper-parameters begin with it
_SOFTWARE = ("framework", "other_software_stack", "operating_system")
_OPTIMIZER = ("name", "learning_rate", "beta1", "beta2", "epsilon", "weight_decay")
_SCHEDULE = ("max_steps", "warmup_steps", "start_warmup_step")
_DECAY = ("decay_steps", "decay_from", "first_step", "end_learning_rate")  # with LAMB they have their defaults
# Triton's documentation starts at compute capability 8.0, like bf16. Older GPUs use torch's own operations.
_BEFORE_BF16: JsonObject = {
    "precision": {"compute": "fp16"},
    "optimizer": {"impl": "torch"},
    "compute": {"compile": "none"},
}
_WITHOUT_DOWNLOADS = ("data.path=cpu_demo", "data.eval_path=null", "model.checkpoint=null", "hardware.division=open")
"""Settings with which BERT-Large trains from random weights on the demo's data, which needs no download."""


class NodeGpus(NamedTuple):
    """The GPUs of each node, and what the file states about a node."""

    number: int
    model: str
    card: str | None
    """The card of `gpu_models` whose figures come with the project, if it is one."""
    hardware: JsonObject
    capability: tuple[int, int] | None
    """The lowest CUDA compute capability; None if the GPUs aren't in this machine."""


class NewSystem(NamedTuple):
    """The content of a system file, the system that it defines, and notes for its user."""

    content: JsonObject
    system: System
    notes: list[str]


def gpus_here(
    present: Sequence[PresentGpu], number: int | None, described: Mapping[str, str], architectures: Sequence[str]
) -> NodeGpus:
    """Return `number` GPUs (default: all) of this machine's kind; the weakest of `present` decides what they can do.

    `described` holds the machine's fields of MLPerf's system description. A larger number than this machine has is for
    nodes of which it isn't one, so their processors and network stay blank. Raises ConfigError if torch, built for
    `architectures`, can't use a GPU.
    """
    if problem := unsupported(present, architectures):
        raise ConfigError(problem)
    number = number or len(present)
    weakest = min(present, key=lambda gpu: gpu.capability)
    memory_gib = min(gpu.memory_gib for gpu in present)
    read_here: tuple[str, ...] = ("accelerator_", *_SOFTWARE)
    if number <= len(present):
        read_here += ("host_",)
    hardware = {
        **_fields(described, *read_here),
        "accelerator_model_name": weakest.model,
        "accelerator_memory_capacity": f"{memory_gib:.0f} GiB",
        "hw_notes": f"CUDA compute capability {weakest.version}",
    }
    return NodeGpus(number, weakest.model, None, hardware, weakest.capability)


def named_gpus(model: str, number: int) -> NodeGpus:
    """Return `number` GPUs of a model: a card of `gpu_models`, or any other name."""
    card = gpu_card(model)
    hardware = {} if card else {"accelerator_model_name": model}
    return NodeGpus(number, card or model, card, hardware, None)


def published_system(ranks: int) -> System:
    """Return the shipped closed system with published hyper-parameters whose number of GPUs is nearest to `ranks`.

    Its global batch divides among the ranks. Raises ConfigError if no such batch does.
    """
    systems = [load_system(name) for name in system_names() if name.startswith(_PUBLISHED)]
    closed = [system for system in systems if system.hardware.division == "closed"]
    dividing = [system for system in closed if system.global_batch_size % ranks == 0]
    if not dividing:
        batches = sorted({system.global_batch_size for system in closed})
        raise ConfigError(
            f"no batch of the shipped closed systems ({', '.join(map(str, batches))}) divides among {ranks} GPUs; "
            "choose another number with --nodes and --gpus"
        )
    return min(dividing, key=lambda system: abs(math.log(system.world_size / ranks)))


def new_system(path: Path, nodes: int, gpus: NodeGpus, memory_gb: float | None, origin: System) -> NewSystem:
    """Return a system in a file at `path`, with the hyper-parameters and the global batch of `origin`.

    `memory_gb` is a GPU's memory; None means that of the card or of this machine. Raises ConfigError if `origin`
    doesn't train BERT-Large on GPUs, if its batch doesn't divide among the GPUs, or if not even one sample at a time
    fits.
    """
    if not trains_bert_large(origin):
        raise ConfigError(f"--from {origin.name}: doesn't train BERT-Large on GPUs; give one of the dgx systems")
    ranks = nodes * gpus.number
    if origin.global_batch_size % ranks:
        raise ConfigError(
            f"--from {origin.name}: its global batch of {origin.global_batch_size} doesn't divide among {ranks} GPUs; "
            "choose another number with --nodes and --gpus"
        )
    content = _content(path, nodes, gpus, memory_gb, origin)
    capacity = capacity_gb(system_from(path, content))
    system, needed = in_fewest_parts(path, content, capacity)
    if needed > capacity:
        raise ConfigError(
            f"{gpus.model}: BERT-Large needs {needed:.1f} GB even with one sample at a time, but a GPU has "
            f"{capacity:g} GB; use larger GPUs, split the model (docs/parallelism.md), or train the demo on the "
            f"processor: bertbench launch {DEMO}"
        )
    notes = [f"machine: {nodes} {'node' if nodes == 1 else 'nodes'} with {gpus.number} x {gpus.model}"]
    at_a_time = f"{system.samples_per_pass} samples at a time ({needed:.1f} GB by `bertbench plan`)"
    if capacity == math.inf:
        notes.append(f"memory: unknown, so each GPU takes {at_a_time}; give --memory GB")
    elif system.parts == 1:
        notes.append(f"memory: each GPU takes {at_a_time}, which fit {capacity:g} GB: all of its step")
    else:
        notes.append(f"memory: each GPU takes {at_a_time}, which fit {capacity:g} GB: a step has {system.parts} parts")
    if "precision" in content:
        notes.append("precision: fp16 with a loss scale, because this GPU has no bf16")
    notes.append(f"batch {system.global_batch_size}, {system.hardware.division} division: as {origin.name} has")
    return NewSystem(content, system, notes)


def in_fewest_parts(path: Path, content: JsonObject, capacity: float) -> tuple[System, float]:
    """Return the system of `content` in the fewest parts that fit `capacity`, and the memory that it needs, both in GB.

    The number of parts is also written to `content`. The memory of simulated steps finds it, and that of steps which
    the run's own planner plans, as in `bertbench plan`, confirms it. If not even one sample at a time fits, the
    returned memory is larger than `capacity`.
    """
    samples = system_from(path, content).local_batch
    for parts in range(1, samples + 1):
        if samples % parts:
            continue
        content["data"]["gradient_accumulation_steps"] = parts
        system = system_from(path, content)
        needed = needed_gb(system)
        if needed <= capacity:
            planned = first_steps(system, rank=0, training=None)
            needed = sum(memory_gb(system, planned.largest_part_in_run).values())
            if needed <= capacity:
                break
    return system, needed


def demo_system(path: Path, described: Mapping[str, str], cores: int) -> NewSystem:
    """Return the demo in a file at `path`, for a machine without GPUs that gives its ranks this many cores."""
    hardware = {
        "system_name": path.stem,
        "number_of_nodes": 1,
        "hw_notes": "",
        **_fields(described, "host_", *_SOFTWARE),
    }
    content: JsonObject = {
        "extends": DEMO,
        "description": f"The demo on {described['host_processor_model_name'] or 'this machine'}, without GPUs",
        "hardware": hardware,
    }
    notes = [f"machine: NVIDIA's driver lists no GPU, so the file trains the demo, {DEMO}, on the processor"]
    if cores == 1:
        content["launch"] = {"ranks_per_node": 1}
        notes.append("ranks: one, because this process may use only one core")
    return NewSystem(content, system_from(path, content), notes)


def next_commands(made: NewSystem, file: Path) -> list[str]:
    """Return the lines that tell the user of `file` how to run it; the first commands need no download."""
    name = shlex.quote(str(file))
    if made.system.launch.device == "cpu":
        return [f"next: bertbench data prepare --system {name}, then bertbench launch {name}"]
    if made.system.hardware.number_of_nodes > 1:
        return [f"next: bertbench plan {name}, then bertbench launch {name} --on slurm --dry-run"]
    options = " ".join(f"--set {setting}" for setting in _WITHOUT_DOWNLOADS)
    return [
        f"next: bertbench data prepare --system {DEMO}, then a few steps on the demo's data, without downloads:",
        f"      bertbench train {name} --smoke {options}",
        f"then: bertbench plan {name} lists the commands that make MLPerf's data and checkpoint, for whole runs",
    ]


def _content(path: Path, nodes: int, gpus: NodeGpus, memory_gb: float | None, origin: System) -> JsonObject:
    ranks = nodes * gpus.number
    machine = "base/gpu" if gpus.card is None else f"base/gpu_{gpus.card.replace('-', '_')}"
    bases = ["base/bert_large", machine]
    if nodes == 1:
        bases.append("base/workstation")
    bases.append(f"base/{origin.hardware.division}")
    hardware: JsonObject = {
        **gpus.hardware,
        "system_name": path.stem,
        "number_of_nodes": nodes,
        "accelerators_per_node": gpus.number,
    }
    if memory_gb is not None:
        hardware["accelerator_memory_capacity"] = f"{memory_gb:g} GB"
    schedule = {name: getattr(origin.schedule, name) for name in _SCHEDULE}
    if origin.optimizer.name == "adam":
        schedule |= {name: getattr(origin.schedule, name) for name in _DECAY}
    content: JsonObject = {
        "extends": bases,
        "description": f"{ranks} {'GPU' if ranks == 1 else 'GPUs'}: {gpus.model}",
        "source": f"hyper-parameters of {origin.name} ({origin.source}); UNTESTED on these GPUs",
        "hardware": hardware,
        "launch": {"ranks_per_node": gpus.number, "walltime_minutes": _minutes(origin, ranks)},
        "data": {"global_batch_size": origin.global_batch_size},
        "optimizer": {name: getattr(origin.optimizer, name) for name in _OPTIMIZER},
        "schedule": schedule,
        "clip": {"mode": origin.clip.mode},
        "evaluation": {"max_samples": origin.evaluation.max_samples},
    }
    without_bf16 = gpus.capability is not None and gpus.capability < BF16_CAPABILITY
    if without_bf16:
        for section, settings in _BEFORE_BF16.items():
            content[section] = {**content.get(section, {}), **settings}
    half: Compression = "fp16" if without_bf16 else "bf16"  # as the division's base has it
    if ranks == 1 or ranks > MOST_SUMMED_RANKS[half]:  # a single rank sends nothing
        content["communication"] = {"compression": "none"}
    elif without_bf16:
        content["communication"] = {"compression": half}
    return content


def _minutes(origin: System, ranks: int) -> int:
    """Return the time limit of a run: that of `origin`, and more in proportion if there are fewer GPUs."""
    return math.ceil(origin.launch.walltime_minutes * max(1.0, origin.world_size / ranks))


def _fields(described: Mapping[str, str], *prefixes: str) -> JsonObject:
    """Return the fields with these prefixes that the machine reports."""
    return {name: value for name, value in described.items() if value and name.startswith(prefixes)}
