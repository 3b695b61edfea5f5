"""List the parts of `gpu_check.sh` in running order, most valuable first, with their time limits.

`python -m lab.bench.gpu.parts FUNCTION` runs a part of our own, which prints a row of JSON after each result.
"""

import sys
from collections.abc import Callable
from pkgutil import resolve_name
from typing import NamedTuple

from lab.bench.gpu.testbed import Unfit, print_row


class CheckPart(NamedTuple):
    """One part of the check."""

    name: str
    group: str
    """The group to which it belongs, run by one command; the limits of its parts add up to less than 600 s."""
    shows: str
    limit_s: int
    command: str
    """The words after `python -m`; the standard output is the answer."""


PARTS = (
    CheckPart(
        "rates", "where", "the rate of each kernel in a step, the GPU's clocks, and cuDNN's descriptor of the GPU", 120,
        "lab.bench.gpu.parts rates.rates",
    ),
    CheckPart(
        "large", "where", "steps of BERT-Large with default settings: rate, filler, memory, and kernels by name", 330,
        "lab.bench.gpu.parts steps.large",
    ),
    CheckPart(
        "optim", "where", "LAMB compared with torch's fused AdamW", 60, "bertbench lab update --json --device cuda"
    ),
    CheckPart(
        "dropout", "where", "dropout in CUDA graphs draws a new mask in each replay", 75,
        "lab.bench.gpu.parts training.dropout",
    ),
    CheckPart(
        "variants", "variants", "steps of BERT-Large with other batches and kernels, and the losses of each", 585,
        "lab.bench.gpu.parts steps.variants",
    ),
    CheckPart(
        "tests", "correctness", "flash attention's error, half precision, recompilations, device synchronization", 150,
        "pytest -q -p lab.bench.gpu.pytest_rows tests/gpu",
    ),
    CheckPart(
        "capture", "correctness", "whole steps as CUDA graphs can be recorded and give the same losses", 260,
        "lab.bench.gpu.parts training.capture",
    ),
    CheckPart(
        "trainer", "correctness", "sharded optimizers, Triton's kernels and fp16, on one rank and on all", 175,
        "lab.bench.gpu.parts training.optimizers",
    ),
    CheckPart(
        "step", "product", "samples/s compared with transformers, including flash attention", 240,
        "bertbench lab step --json --device cuda --sizes large --no-compile --batch 32 "
        "--attention sdpa,unpadded_kernel",
    ),
    CheckPart(
        "plain", "product", "200 steps of BERT-Large by run_and_time.sh without fast paths", 165,
        "lab.bench.gpu.parts product.plain",
    ),
    CheckPart(
        "demo", "product", "the demo, trained to its target by run_and_time.sh on one GPU", 180,
        "lab.bench.gpu.parts product.demo",
    ),
)  # fmt: skip

GROUPS: dict[str, tuple[str, ...]] = {}
"""The names of each group's parts, in running order."""
for _part in PARTS:
    GROUPS[_part.group] = (*GROUPS.get(_part.group, ()), _part.name)


def main(function: str) -> None:
    """Run one of our own parts in this process."""
    run: Callable[[], None] = resolve_name(f"lab.bench.gpu.{function}")
    try:
        run()
    except Unfit as reason:
        print_row({"not_reached": str(reason)})


if __name__ == "__main__":
    main(sys.argv[1])
