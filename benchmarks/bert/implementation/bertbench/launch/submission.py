"""Read the name of a published submission's configuration, and find the system that comes with the project for it.

`DGXA100_8x8x48x1` is 8 nodes of 8 GPUs, 48 samples per GPU in each of one gradient step. A name ends with what else its
configuration does: `_pack` counts packed rows of 512 tokens for samples, `_clipafter` clips after the all-reduce.
"""

import re
from typing import NamedTuple, Self

from bertbench.common.errors import ConfigError
from bertbench.config import load_system, system_names

_NAME = re.compile(
    r"(?P<family>[A-Za-z][A-Za-z0-9-]*)_(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<batch>\d+)x(?P<steps>\d+)(?P<more>(_\w+)*)"
)


class Submission(NamedTuple):
    """A configuration by its name."""

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
    def from_name(cls, name: str) -> Self | None:
        """Return the submission of this name; None if the name isn't of this kind."""
        if (found := _NAME.fullmatch(name)) is None:
            return None
        nodes, gpus, batch, steps = (int(found[part]) for part in ("nodes", "gpus", "batch", "steps"))
        words = found["more"].split("_")
        return cls(name, found["family"], nodes, gpus, batch, steps, "pack" in words, "clipafter" in words)


def shipped_system(submission: Submission) -> str:
    """Return the closed system of these nodes and GPUs that comes with the project. Raises ConfigError if none does."""
    families = {submission.family.lower(), f"dgx{submission.family.lower()}"}
    for name in system_names():
        family = name.rpartition("_n")[0]
        if family not in families:
            continue
        system = load_system(name)
        shape = system.hardware.number_of_nodes, system.launch.ranks_per_node
        if shape == (submission.nodes, submission.gpus) and system.hardware.division == "closed":
            return name
    raise ConfigError(
        f"no system of {submission.nodes} nodes with {submission.gpus} {submission.family} GPUs comes with the "
        "project; `bertbench config list` lists those that do, `bertbench config scale` adapts one, `bertbench config "
        f"init --nodes {submission.nodes} --gpus {submission.gpus}` writes another"
    )
