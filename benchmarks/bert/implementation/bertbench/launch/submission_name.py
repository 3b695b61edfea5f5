"""Read the name of a published submission's configuration, and find the system that comes with the project for it.

`DGXA100_8x8x48x1` means 8 nodes of 8 GPUs with 48 samples per GPU and gradient step, and 1 gradient step. Endings say
more: `_pack` counts packed rows of 512 tokens instead of samples, `_clipafter` clips after the all-reduce, and `_open`,
which only bertbench uses, means the open division.
"""

import re
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple, Self

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system, pre_training_names
from bertbench.launch.variables import BATCH_SETTINGS, SAMPLES_OF_A_ROW, SHAPE_SETTINGS, Exported

_NAME = re.compile(
    r"(?P<family>[A-Za-z][A-Za-z0-9-]*)_(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<batch>\d+)x(?P<steps>\d+)(_\w+)*"
)


class SubmissionName(NamedTuple):
    """What the name of a published configuration says."""

    name: str
    family: str
    nodes: int
    gpus: int
    """GPUs on each node."""

    micro_batch: int
    """Samples, or packed rows, of one gradient step on one GPU."""

    steps: int
    packed: bool
    open_division: bool

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return what a name says; None if the name isn't of this kind."""
        parts = _NAME.fullmatch(name)
        if parts is None:
            return None
        endings = endings_of(name)
        return cls(
            name=name,
            family=parts["family"],
            nodes=int(parts["nodes"]),
            gpus=int(parts["gpus"]),
            micro_batch=int(parts["batch"]),
            steps=int(parts["steps"]),
            packed="pack" in endings,
            open_division="open" in endings,
        )

    @property
    def samples_per_gpu(self) -> int:
        """Return the samples of one step on one GPU."""
        samples_of_an_entry = SAMPLES_OF_A_ROW if self.packed else 1
        return self.micro_batch * self.steps * samples_of_an_entry

    def contradicting_shape(self, system: System, set_by_arguments: Set[str]) -> list[str]:
        """Return the contradictions between the batch in the name and the system that stands for it.

        An argument overrides the name, so settings in `set_by_arguments` aren't compared.
        """
        problems = []
        resized = not set_by_arguments.isdisjoint({*BATCH_SETTINGS, *SHAPE_SETTINGS})
        if not resized and self.samples_per_gpu != system.local_batch:
            problems.append(
                f"DGXSYSTEM={self.name} names {self.samples_per_gpu} samples per GPU and step, but the run has "
                f"{system.local_batch}; export DGXSYSTEM={name_of(system, self.packed)}, or BATCHSIZE as the name "
                "has it"
            )
        steps = system.data.gradient_accumulation_steps
        if "data.gradient_accumulation_steps" not in set_by_arguments and self.steps != steps:
            problems.append(
                f"DGXSYSTEM={self.name} names {self.steps} gradient steps, but the run has {steps}; export "
                f"DGXSYSTEM={name_of(system, self.packed)}, or GRADIENT_STEPS as the name has it"
            )
        return problems


def endings_of(name: str) -> Set[str]:
    """Return the endings of a configuration's name, without their `_`; a system file's name has none that count."""
    return set() if name.endswith(".json") else set(name.split("_")[1:])


def contradicting_endings(exported: Exported, system: System, set_by_arguments: Set[str]) -> list[str]:
    """Return the contradictions between the endings of an exported name and the run's system, whatever names that.

    An argument overrides the name, so settings in `set_by_arguments` aren't compared.
    """
    problems = []
    endings = endings_of(plain_name(exported.value))
    if "clipafter" in endings and "clip.mode" not in set_by_arguments and system.clip.mode != "after":
        problems.append(
            f"{exported} names clipping after the all-reduce, but {system.name} clips {system.clip.mode} it; give "
            f"--set clip.mode=after, or unset {exported.name} and give SYSTEM"
        )
    division = system.hardware.division
    if "open" in endings and "hardware.division" not in set_by_arguments and division != "open":
        problems.append(
            f"{exported} names the open division, but {system.name} is for the {division} one; unset {exported.name} "
            "and give SYSTEM, or export the name without _open"
        )
    return problems


def name_of(system: System, packed: bool) -> str:
    """Return the name by which published submissions would call a system's configuration.

    DGXSYSTEM takes it if the system, or the one that it was changed from, comes with the project. With `packed`, it
    counts packed rows, unless the samples of a gradient step don't fill whole rows.
    """
    family = _family(system.name)
    if family.startswith("dgx"):
        family = family.upper()
    ending = "_open" if system.hardware.division == "open" else ""
    batch = system.samples_per_pass
    if packed and batch % SAMPLES_OF_A_ROW == 0:
        batch //= SAMPLES_OF_A_ROW
        ending = f"_pack{ending}"
    shape = (
        system.hardware.number_of_nodes,
        system.launch.ranks_per_node,
        batch,
        system.data.gradient_accumulation_steps,
    )
    return f"{family}_{'x'.join(map(str, shape))}{ending}"


def _family(system_name: str) -> str:
    """Return a system's name without its nodes and division: `dgxa100` for dgxa100_n8_open."""
    return re.sub(r"_n\d+(_open)?$", "", system_name)


def plain_name(text: str) -> str:
    """Return the system's name that DGXSYSTEM gives: for config_NAME.sh, a published configuration file, it is NAME."""
    if not text.endswith(".sh") and not text.startswith("config_"):
        return text
    return Path(text).name.removeprefix("config_").removesuffix(".sh")


def shipped_system(submission: SubmissionName) -> str:
    """Return the project's system with these nodes and GPUs, in the closed division unless the name ends with `_open`.

    Raises ConfigError if none does.
    """
    families = {submission.family.lower(), f"dgx{submission.family.lower()}"}
    division = "open" if submission.open_division else "closed"
    for name in pre_training_names():
        if _family(name) not in families:
            continue
        system = load_system(name)
        has_shape = (
            system.hardware.number_of_nodes == submission.nodes and system.launch.ranks_per_node == submission.gpus
        )
        if has_shape and system.hardware.division == division:
            return name
    kind = "open system" if submission.open_division else "system"
    raise ConfigError(
        f"no {kind} of {submission.nodes} nodes with {submission.gpus} {submission.family} GPUs comes with the "
        "project; `bertbench config list` lists those that do; "
        f"{another_system(str(submission.nodes), str(submission.gpus))}"
    )


def another_system(nodes: str, gpus: str) -> str:
    """Return how to write a system with these numbers of nodes and of GPUs on each, and how to name it."""
    return (
        f"`bertbench config init --nodes {nodes} --gpus {gpus} --gpu-model MODEL` writes one: give its file as SYSTEM"
    )
