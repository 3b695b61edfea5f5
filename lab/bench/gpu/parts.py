"""List the parts of `gpu_check.sh` in running order, most valuable first, with their time limits.

`python -m lab.bench.gpu.parts FUNCTION` runs one of our own, which says a row of JSON after each result.
"""

import sys
from collections.abc import Callable
from pkgutil import resolve_name
from typing import NamedTuple

from lab.bench.gpu.stand import Unfit, print_row


class CheckPart(NamedTuple):
    """One part of the check."""

    name: str
    group: str
    """The command that runs it: the limits of a group's parts add up to less than 600 s."""
    shows: str
    limit_s: int
    command: str
    """Words after `python -m`; its standard output is the answer."""


PARTS = (
    CheckPart(
        "demo", "product", "run_and_time.sh trains the demo to its target on one GPU", 180,
        "lab.bench.gpu.parts product.demo",
    ),
    CheckPart(
        "large", "product", "200 steps of BERT-Large by run_and_time.sh, fast and plain", 390,
        "lab.bench.gpu.parts product.large",
    ),
    CheckPart(
        "tests", "correct", "flash attention's error, half precision, recompiles, read-backs", 150,
        "pytest -q -p lab.bench.gpu.pytest_rows tests/gpu/test_gpu.py",
    ),
    CheckPart(
        "capture", "correct", "whole steps as CUDA graphs: legal, and the same losses", 290,
        "lab.bench.gpu.parts training.capture",
    ),
    CheckPart(
        "trainer", "correct", "every optimizer in the trainer, on one rank and on all", 140,
        "lab.bench.gpu.parts training.optimizers",
    ),
    CheckPart(
        "step", "speed", "samples/s beside transformers, flash attention among them", 360,
        "bertbench lab step --json --device cuda --sizes large --no-compile",
    ),
    CheckPart(
        "optim", "speed", "LAMB beside torch's fused AdamW", 60, "bertbench lab update --json --device cuda"
    ),
    CheckPart(
        "computed", "speed", "the steps that kernels' bytes and launches predict, to read beside those timed", 150,
        "bertbench lab roofline --json",
    ),
    CheckPart(
        "trace", "profile", "where the time of a step of BERT-Large goes", 210, "lab.bench.gpu.parts product.profile"
    ),
)  # fmt: skip

GROUPS: dict[str, tuple[str, ...]] = {}
"""The names of each group's parts, in running order."""
for _part in PARTS:
    GROUPS[_part.group] = (*GROUPS.get(_part.group, ()), _part.name)


def main(function: str) -> None:
    """Run one of our parts in this process."""
    run: Callable[[], None] = resolve_name(f"lab.bench.gpu.{function}")
    try:
        run()
    except Unfit as reason:
        print_row({"not_reached": str(reason)})


if __name__ == "__main__":
    main(sys.argv[1])
