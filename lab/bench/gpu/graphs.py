"""Record whole steps as CUDA graphs: check that recording works, and computes what plain steps do."""

from importlib.util import find_spec

from bertbench.config.optimizer import Implementation
from lab.bench.gpu.stand import Stand
from lab.bench.gpu.training import Choice, compare

_TOLERANCE = 2e-3  # share of a loss, in bf16, over a few steps


def recorded() -> list[Choice]:
    """Return the trainers whose steps are recorded."""
    impls: list[Implementation] = ["triton", "torch"] if find_spec("triton") else ["torch"]
    graphs = Choice(precision="bf16", compile="graphs")
    others = graphs._replace(accumulation=2), graphs._replace(clip="bucket"), graphs._replace(sharded=True)
    return [*(graphs._replace(impl=impl) for impl in impls), *others]


def capture(stand: Stand) -> None:
    """Record and replay steps with each optimizer, on one rank and on all: losses must be those of plain steps."""
    stand.need_gpu()
    for choice in recorded():
        compare(stand, Choice(precision="bf16", compile="default", clip=choice.clip), choice, _TOLERANCE)
