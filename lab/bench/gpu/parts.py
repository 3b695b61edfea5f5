"""List the parts of `gpu_check.sh` in running order, most valuable first, with their time limits.

`python -m lab.bench.gpu.parts NAME` runs one of our own parts, which says a row of JSON after each result.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from lab.bench.gpu.stand import Stand, Unfit, say, stand


class Part(NamedTuple):
    """One part of the check."""

    name: str
    group: str
    """The command that runs it: the limits of a group's parts add up to less than 600 s."""
    shows: str
    limit_s: int
    function: str = ""
    """Module and function that runs it; empty for a command."""
    command: tuple[str, ...] = ()
    """Words after `python -m`; its standard output is the answer."""
    gpus: int = 0
    """GPUs without which it isn't tried; with fewer than 2, a part runs in small on a CPU, or up to the device."""


PARTS = (
    Part("demo", "product", "run_and_time.sh trains the demo to its target on one GPU", 180, "product.demo"),
    Part("large", "product", "200 steps of BERT-Large by run_and_time.sh, fast and plain", 390, "product.large"),
    Part(
        "tests", "correct", "flash attention's error, half precision, recompiles, read-backs", 120,
        command=("pytest", "-q", "-p", "lab.bench.gpu.pytest_rows", "tests/gpu/test_gpu.py"),
    ),
    Part("capture", "correct", "whole steps as CUDA graphs: legal, and the same losses", 240, "graphs.capture"),
    Part("nccl", "correct", "sums, slices and gathers, on one rank and on all", 40, "ranks.collectives"),
    Part("trainer", "correct", "every optimizer in the trainer, on one rank and on all", 140, "training.optimizers"),
    Part("contexts", "correct", "one context a process and GPU, the loader's thread included", 40, "ranks.contexts"),
    Part("bins", "speed", "BERT-Large's step in every size of batch, replayed and not", 240, "graphs.bins"),
    Part(
        "step", "speed", "samples/s beside transformers, flash attention among them", 240,
        command=("bertbench", "lab", "step", "--json", "--device", "cuda", "--sizes", "large"),
    ),
    Part(
        "optim", "speed", "LAMB beside torch's fused AdamW", 60,
        command=("bertbench", "lab", "optim", "--json", "--device", "cuda"),
    ),
    Part("trace", "profile", "where the time of a step of BERT-Large goes", 210, "product.profile"),
    Part("convergence", "profile", "300 steps, all on, end where plain fp32 ends", 120, "training.convergence"),
    Part(
        "overlap", "profile", "communication behind the backward pass", 180,
        command=("bertbench", "lab", "overlap", "--json"), gpus=2,
    ),
)  # fmt: skip

GROUPS = {part.group: tuple(one.name for one in PARTS if one.group == part.group) for part in PARTS}


def main(name: str) -> int:
    """Run one of our parts in this process."""
    part = next(part for part in PARTS if part.name == name)
    module, _, function = part.function.partition(".")
    run: Callable[[Stand], None] = getattr(import_module(f"lab.bench.gpu.{module}"), function)
    try:
        run(stand())
    except Unfit as reason:
        say({"not_reached": str(reason)})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
