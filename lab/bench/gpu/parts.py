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
        "rates", "where", "the rate of each kernel of a step, the GPU's clocks, cuDNN's descriptor of it", 120,
        "lab.bench.gpu.parts rates.rates",
    ),
    CheckPart(
        "large", "where", "steps of BERT-Large as they come: rate, filler, memory, and kernels by name", 330,
        "lab.bench.gpu.parts steps.large",
    ),
    CheckPart(
        "optim", "where", "LAMB beside torch's fused AdamW", 60, "bertbench lab update --json --device cuda"
    ),
    CheckPart(
        "dropout", "where", "dropout in CUDA graphs draws a new mask at each replay", 75,
        "lab.bench.gpu.parts training.dropout",
    ),
    CheckPart(
        "variants", "variants", "steps of BERT-Large with other batches and kernels, and their losses", 585,
        "lab.bench.gpu.parts steps.variants",
    ),
    CheckPart(
        "tests", "correctness", "flash attention's error, half precision, recompiles, read-backs", 150,
        "pytest -q -p lab.bench.gpu.pytest_rows tests/gpu/test_gpu.py",
    ),
    CheckPart(
        "capture", "correctness", "whole steps as CUDA graphs: legal, and the same losses", 260,
        "lab.bench.gpu.parts training.capture",
    ),
    CheckPart(
        "trainer", "correctness", "sharded, Triton's and fp16's trainers, on one rank and on all", 175,
        "lab.bench.gpu.parts training.optimizers",
    ),
    CheckPart(
        "step", "product", "samples/s beside transformers, flash attention among them", 240,
        "bertbench lab step --json --device cuda --sizes large --no-compile --batch 32 "
        "--attention sdpa,unpadded_kernel",
    ),
    CheckPart(
        "plain", "product", "200 steps of BERT-Large by run_and_time.sh without a fast path", 165,
        "lab.bench.gpu.parts product.plain",
    ),
    CheckPart(
        "demo", "product", "run_and_time.sh trains the demo to its target on one GPU", 180,
        "lab.bench.gpu.parts product.demo",
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
