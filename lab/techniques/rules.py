"""What every technique asks of a system: plain steps of whole models, in the open division."""

from bertbench.config import System
from bertbench.config.rules import UNSCALED, Rule, allow_only


def _models_are_whole(system: System) -> str | None:
    if not system.parallel.splits:
        return None
    return "parallel splits the model, but techniques need whole models; leave parallel out, or leave out --technique"


RULES: tuple[Rule, ...] = (
    *allow_only(
        {
            "hardware.division": ("open",),
            "optimizer.sharded": (False,),  # each rank keeps its whole state
            "optimizer.impl": ("torch",),  # Triton's kernels read sums where only the product's own leave them
            "compute.compile": (None, "none", "default"),  # a recorded step replays the product's own parts
            "communication.compression": ("none",),
            "precision.compute": UNSCALED,  # a step can't be skipped, and an overflow would stay in a carried error
        },
        where=lambda _: True,
        because="doesn't go with a technique of the laboratory",
        instead="leave out --technique",
    ),
    _models_are_whole,
)
