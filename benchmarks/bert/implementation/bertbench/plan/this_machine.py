"""Write a system file for this machine: the demo if it has no GPUs, otherwise BERT-Large on its GPUs.

The driver's information about the GPUs decides the rest: their memory determines the parts of a batch, their compute
capability the number format.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject
from bertbench.config.load import load_system, system_from, system_names
from bertbench.machine.gpu_support import unsupported
from bertbench.machine.gpus import PresentGpu
from bertbench.model.format_needs import BF16_CAPABILITY
from bertbench.plan.fit import in_fewest_parts
from bertbench.plan.memory import capacity_gb
from bertbench.plan.new_system import NewSystem

FILE = Path("this_machine.json")
"""The name of the file if the user gives none."""
DEMO = "cpu_demo"
_FAMILY = "gpu_"  # these systems have one machine and are named after its number of GPUs
# Triton's documentation starts at compute capability 8.0, like bf16. Older GPUs use torch's own operations.
_BEFORE_BF16: JsonObject = {
    "precision": {"compute": "fp16"},
    "optimizer": {"impl": "torch"},
    "compute": {"compile": "none"},
}
_WITHOUT_DOWNLOADS = ("data.path=cpu_demo", "data.eval_path=null", "model.checkpoint=null", "hardware.division=open")
"""Settings with which BERT-Large trains from random weights on the demo's data, which needs no download."""


def system_of_machine(
    path: Path, gpus: Sequence[PresentGpu], described: Mapping[str, str], cores: int, architectures: Sequence[str]
) -> NewSystem:
    """Return a system in a file at `path` for a machine with these GPUs (perhaps none) and `cores` for its ranks.

    `described` holds the machine's fields of MLPerf's system description. Raises ConfigError if torch, built for
    `architectures`, can't use a GPU, or if BERT-Large doesn't fit on one.
    """
    if gpus:
        return _on_gpus(path, gpus, described, architectures)
    return _on_processors(path, described, cores)


def next_commands(made: NewSystem, file: Path) -> list[str]:
    """Return the lines that tell the user of `file` how to run it; the first commands need no download."""
    name = shlex.quote(str(file))
    if made.system.launch.device == "cpu":
        return [f"next: bertbench data prepare --system {name}, then bertbench launch {name}"]
    options = " ".join(f"--set {setting}" for setting in _WITHOUT_DOWNLOADS)
    return [
        f"next: bertbench data prepare --system {DEMO}, then a few steps on the demo's data, without downloads:",
        f"      bertbench train {name} --smoke {options}",
        f"then: bertbench plan {name} lists the commands that make MLPerf's data and checkpoint, for whole runs",
    ]


def _on_processors(path: Path, described: Mapping[str, str], cores: int) -> NewSystem:
    hardware = {"system_name": path.stem, "number_of_nodes": 1, "hw_notes": "", **_fields(described, "host_")}
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


def _on_gpus(
    path: Path, gpus: Sequence[PresentGpu], described: Mapping[str, str], architectures: Sequence[str]
) -> NewSystem:
    if problem := unsupported(gpus, architectures):
        raise ConfigError(problem)
    weakest = min(gpus, key=lambda gpu: gpu.capability)
    memory_gib = min(gpu.memory_gib for gpu in gpus)
    base, ranks = _base(len(gpus))
    fields = _fields(described, "host_", "accelerator_")
    content: JsonObject = {
        "extends": base,
        "description": f"{ranks} {'GPU' if ranks == 1 else 'GPUs'}: {weakest.model}",
        "hardware": {
            **fields,
            "system_name": path.stem,
            "accelerators_per_node": ranks,
            "accelerator_model_name": weakest.model,
            "accelerator_memory_capacity": f"{memory_gib:.0f} GiB",
            "hw_notes": f"CUDA compute capability {weakest.version}",
        },
        "launch": {"ranks_per_node": ranks},
        "data": {},
    }
    if weakest.capability < BF16_CAPABILITY:
        content |= _BEFORE_BF16
        if ranks > 1:  # a single rank sends nothing
            content["communication"] = {"compression": "fp16"}
    made, needed = in_fewest_parts(path, content, capacity_gb(system_from(path, content)))
    if needed > capacity_gb(made):
        raise ConfigError(
            f"{weakest.model}: BERT-Large needs {needed:.1f} GB even with one sample at a time, but the GPU has "
            f"{memory_gib:.0f} GiB; use a larger GPU, or train the demo on the processor: bertbench launch {DEMO}"
        )
    notes = [
        f"machine: {len(gpus)} x {weakest.model}, {memory_gib:.0f} GiB, compute capability {weakest.version}",
        f"memory: {made.samples_per_pass} samples at a time fit ({needed:.1f} GB by `bertbench plan`), so a step with "
        f"{made.global_batch_size} samples has {made.parts} parts on each GPU",
        f"hyper-parameters: {made.source}",
    ]
    if weakest.capability < BF16_CAPABILITY:
        notes.append("precision: fp16 with a loss scale, because this GPU has no bf16")
    if ranks < len(gpus):
        notes.append(
            f"GPUs: the file uses {ranks} of {len(gpus)}, because a batch of {made.global_batch_size} doesn't divide "
            f"among {len(gpus)}; choose another: `bertbench config init --gpus {len(gpus)} --gpu-model NAME --batch N`"
        )
    return NewSystem(content, made, notes)


def _base(gpus: int) -> tuple[str, int]:
    """Return the shipped system to extend, and the most ranks, up to `gpus`, among which its batch divides."""
    batch = load_system(f"{_FAMILY}1").global_batch_size
    ranks = max(ranks for ranks in range(1, gpus + 1) if batch % ranks == 0)
    shipped = [int(name.removeprefix(_FAMILY)) for name in system_names() if name.startswith(_FAMILY)]
    return f"{_FAMILY}{max(number for number in shipped if number <= ranks)}", ranks


def _fields(described: Mapping[str, str], *prefixes: str) -> JsonObject:
    """Return the fields with these prefixes that the machine reports, and its software."""
    software = ("framework", "other_software_stack", "operating_system")
    return {name: value for name, value in described.items() if value and name.startswith((*prefixes, *software))}
