"""Read the name of a published submission's configuration, and find the system that comes with the project for it.

`DGXA100_8x8x48x1` is 8 nodes of 8 GPUs, 48 samples per GPU in each of one gradient step. A name ends with what else its
configuration does: `_pack` counts packed rows of 512 tokens for samples, `_clipafter` clips after the all-reduce.
"""

import re
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple, Self

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system, pre_training_names
from bertbench.launch.variables import BATCH_SETTINGS, SAMPLES_OF_A_ROW, SHAPE

_NAME = re.compile(
    r"(?P<family>[A-Za-z][A-Za-z0-9-]*)_(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<batch>\d+)x(?P<steps>\d+)(?P<more>(_\w+)*)"
)


class SubmissionName(NamedTuple):
    """What the name of a published configuration says."""

    name: str
    family: str
    nodes: int
    gpus: int
    """On each node."""

    micro_batch: int
    """Samples of one gradient step on one GPU, or packed rows."""

    steps: int
    packed: bool
    clips_after: bool

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return what a name says; None if the name isn't of this kind."""
        parts = _NAME.fullmatch(name)
        if parts is None:
            return None
        endings = parts["more"].split("_")
        return cls(
            name=name,
            family=parts["family"],
            nodes=int(parts["nodes"]),
            gpus=int(parts["gpus"]),
            micro_batch=int(parts["batch"]),
            steps=int(parts["steps"]),
            packed="pack" in endings,
            clips_after="clipafter" in endings,
        )

    @property
    def samples_per_gpu(self) -> int:
        """Return the samples of one step on one GPU."""
        samples_of_an_entry = SAMPLES_OF_A_ROW if self.packed else 1
        return self.micro_batch * self.steps * samples_of_an_entry

    def contradictions(self, system: System, set_by_arguments: Set[str]) -> list[str]:
        """Return where the name says another number than the system that stands for it.

        An argument beats the name: settings in `set_by_arguments` aren't compared.
        """
        problems = []
        variable = f"DGXSYSTEM={self.name} "
        resized = not set_by_arguments.isdisjoint({*BATCH_SETTINGS, *SHAPE.values()})
        if not resized and self.samples_per_gpu != system.local_batch:
            problems.append(
                f"{variable}names {self.samples_per_gpu} samples per GPU and step, the run has {system.local_batch}; "
                f"give SYSTEM by name ({system.name}), or export BATCHSIZE as the name has it"
            )
        steps = system.data.gradient_accumulation_steps
        if "data.gradient_accumulation_steps" not in set_by_arguments and self.steps != steps:
            problems.append(
                f"{variable}names {self.steps} gradient steps, the run has {steps}; give SYSTEM by name "
                f"({system.name}), or export GRADIENT_STEPS as the name has it"
            )
        if "clip.mode" not in set_by_arguments and self.clips_after and system.clip.mode != "after":
            problems.append(
                f"{variable}names clipping after the all-reduce, {system.name} clips {system.clip.mode} it; give --set "
                "clip.mode=after, or SYSTEM by name"
            )
        return problems


def plain_name(text: str) -> str:
    """Return the system's name that DGXSYSTEM gives: of config_NAME.sh, a published configuration file, it is NAME."""
    if not text.endswith(".sh") and not text.startswith("config_"):
        return text
    return Path(text).name.removeprefix("config_").removesuffix(".sh")


def shipped_system(submission: SubmissionName) -> str:
    """Return the closed system of these nodes and GPUs that comes with the project. Raises ConfigError if none does."""
    families = {submission.family.lower(), f"dgx{submission.family.lower()}"}
    for name in pre_training_names():
        family = name.rpartition("_n")[0]
        if family not in families:
            continue
        system = load_system(name)
        has_shape = (
            system.hardware.number_of_nodes == submission.nodes and system.launch.ranks_per_node == submission.gpus
        )
        if has_shape and system.hardware.division == "closed":
            return name
    raise ConfigError(
        f"no system of {submission.nodes} nodes with {submission.gpus} {submission.family} GPUs comes with the "
        "project; `bertbench config list` lists those that do, `bertbench config scale` adapts one, `bertbench config "
        f"init --nodes {submission.nodes} --gpus {submission.gpus}` writes another"
    )
