"""Between evaluations nothing may be read back from the device: on a GPU the host would wait for it.

Counted here on the CPU, where every such read is the same call; tests/gpu asks CUDA itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.runs.metrics import Metrics
from tests.conftest import Tiny
from tests.ranks import run_each
from tests.training.steps import loaded, whole_trainer
from tests.watching import Watching

READING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::is_nonzero", "aten::equal"}
_METHODS = {Tensor.tolist, Tensor.numpy, Tensor.cpu}


def noting(reads: list[str], names: set[str] = READING) -> Watching:
    """Record operators whose result the host needs, such as .item() and conditions on tensors."""
    return Watching(lambda function, _: reads.extend(names & {function._schema.name}))


class _Methods(TorchFunctionMode):
    """Record methods that copy a whole tensor to the host."""

    def __init__(self, reads: list[str]) -> None:
        super().__init__()
        self._reads = reads

    def __torch_function__(self, function: Any, types: Any, arguments: Sequence[Any] = (), options: Any = None) -> Any:
        if function in _METHODS:
            self._reads.append(function.__name__)
        return function(*arguments, **(options or {}))


def reads_of(work: Callable[[], object]) -> list[str]:
    """Return what `work` reads back from the device."""
    reads: list[str] = []
    with noting(reads), _Methods(reads):
        work()
    return reads


def test_steps_and_their_metrics_read_nothing_back(tiny: Tiny) -> None:
    common = ("launch.ranks_per_node=1", "data.gradient_accumulation_steps=2")
    choices = [("clip.mode=before", "optimizer.name=lamb"), ("clip.mode=bucket", "precision.compute=fp16")]
    run_each(1, check_steps, *((tiny(*common, *choice),) for choice in choices))


def check_steps(world: World, system: System) -> None:
    steps = list(loaded(world, system, 3))
    elsewhere = replace(world, device=torch.device("meta"))  # any device but the host's own memory
    with (
        whole_trainer(system, world) as trainer,
        Metrics(None, elsewhere) as metrics,
    ):

        def train() -> None:
            for number, step in enumerate(steps):
                metrics.record(number + 1, 12 * number, trainer.step(number, step.parts), 1.0, step)

        assert reads_of(train) == []
        assert reads_of(metrics.flush) != []
        assert metrics.last_loss > 0
