"""List the parts of `gpu_check.sh` in running order, with their time limits.

`python -m lab.bench.gpu.parts NAME` runs one of our own parts and prints its answer.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from lab.bench.gpu.stand import Answer, Stand, Unfit, stand


class Part(NamedTuple):
    """One part of the check."""

    name: str
    shows: str
    limit_s: int
    function: str = ""
    """Module and function that runs it; empty for a command."""
    command: tuple[str, ...] = ()
    """Words after `python -m`; its standard output is the answer."""
    gpus: int = 0
    """GPUs that it needs; parts that need none run in small on a CPU."""


PARTS = (
    Part("tests", "flash attention's error, half precision, recompiles, read-backs", 240, command=("pytest",), gpus=1),
    Part("contexts", "one context a process and GPU, the loader's thread included", 60, "ranks.contexts", gpus=1),
    Part("nccl", "sums, slices and gathers, on one rank and on all", 60, "ranks.collectives"),
    Part("trainer", "every optimizer in the whole trainer, on one rank and on all", 180, "training.optimizers"),
    Part("capture", "whole steps as CUDA graphs: legal, and the same losses", 180, "graphs.capture", gpus=1),
    Part("bins", "BERT-Large's step in every size of batch, replayed and not", 240, "graphs.bins", gpus=1),
    Part("convergence", "300 steps with everything on end where plain fp32 ends", 120, "training.convergence"),
    Part(
        "step", "samples/s beside transformers, flash attention among them", 360,
        command=("bertbench", "lab", "step", "--json", "--device", "cuda", "--sizes", "base,large"), gpus=1,
    ),
    Part(
        "optim", "LAMB beside torch's fused AdamW", 60,
        command=("bertbench", "lab", "optim", "--json", "--device", "cuda"), gpus=1,
    ),
    Part(
        "overlap", "communication behind the backward pass", 180,
        command=("bertbench", "lab", "overlap", "--json"), gpus=2,
    ),
)  # fmt: skip


def main(name: str) -> int:
    """Run one of our parts in this process and print its results as JSON."""
    part = next(part for part in PARTS if part.name == name)
    module, _, function = part.function.partition(".")
    run: Callable[[Stand], Answer] = getattr(import_module(f"lab.bench.gpu.{module}"), function)
    try:
        answer = run(stand())
    except Unfit as reason:
        print(json.dumps({"skipped": str(reason)}))
        return 0
    print(json.dumps(answer._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
