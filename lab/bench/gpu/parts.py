"""List the parts of `gpu_check.sh` in running order, most valuable first, with their time limits.

`python -m lab.bench.gpu.parts FUNCTION` runs a part of our own, which prints a row of JSON after each result.
"""

import sys
from collections.abc import Callable
from importlib import import_module
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
        "rates", "where", "the rates of a copy, of products in bf16, attention, GELU and LAMB; the GPU's clocks", 75,
        "lab.bench.gpu.parts rates.rates",
    ),
    CheckPart(
        "rates_in_8_bits", "where", "the rates of products in fp8, with fast and with slow sums, and of casts", 75,
        "lab.bench.gpu.parts rates.rates_in_8_bits",
    ),
    CheckPart(
        "steps", "where", "steps of BERT-Large in bf16, in fp8, without graphs, with an fp32 residual; kernels by name",
        430, "lab.bench.gpu.parts steps.steps",
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
    module, _, name = function.partition(".")
    run: Callable[[], None] = getattr(import_module(f"lab.bench.gpu.{module}"), name)
    try:
        run()
    except Unfit as reason:
        print_row({"not_reached": str(reason)})


if __name__ == "__main__":
    main(sys.argv[1])
