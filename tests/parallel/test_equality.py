"""Strict semantics: in every layout on 4 gloo ranks, and one on 2, a step is the step of one rank, but for rounding.

Compared are losses, norms and gradients of two steps, then weights and moments, and the eval accuracy; with
dropout 0, since random streams belong to ranks. What each rank sends is what the formulas say, to the byte.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor, distributed
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.tensor import DTensor

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import LoadedStep, Loader
from bertbench.model.logical_tensors import local, logical
from bertbench.parallel.stage import logical_name
from bertbench.plan.layout_cost import sent_bytes
from bertbench.plan.memory import stage_parameters
from bertbench.training.build import make_evaluator, make_trainer
from bertbench.training.layout_trainer import LayoutTrainer
from bertbench.training.trainer import Trainer
from tests.compiling import compiled_by
from tests.conftest import Tiny
from tests.parallel.traffic import Traffic
from tests.ranks import run_ranks
from tests.training.steps import sampler_of

STEPS = 2
# fp32 sums in another order, and a gradient that is 0 but for rounding (of the key biases) is 1e-3 of Adam's epsilon
LOSS, GRADIENT, STATE = 2e-5, 1e-6, 5e-5

SHAPE = ("model.layers=4", "model.feed_forward_size=22", "data.global_batch_size=16", "data.balance=planned")
Layouts = Mapping[str, tuple[str, ...]]
LAYOUTS: Layouts = {
    "4x1x1": (),
    "4x1x1 recomputed": ("parallel.recompute=true",),
    "2x2x1": ("parallel.tensor=2",),
    "2x2x1 accumulated": ("parallel.tensor=2", "data.gradient_accumulation_steps=2", "parallel.recompute=true"),
    "2x1x2": ("parallel.pipeline=2", "parallel.microbatches=3", "parallel.schedule=gpipe"),
    "1x2x2": ("parallel.tensor=2", "parallel.pipeline=2", "parallel.microbatches=3"),
    "1x1x4": ("parallel.pipeline=4", "parallel.microbatches=5"),
    "2x1x2 interleaved": (
        "parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.schedule=interleaved", "parallel.microbatches=4",
        "parallel.recompute=true",
    ),
    "4 sharded": ("parallel.fully_shard=true",),
    "4 sharded, accumulated": (
        "parallel.fully_shard=true", "data.gradient_accumulation_steps=2", "parallel.recompute=true",
    ),
}  # fmt: skip

COMPILED: Layouts = {
    "1x1x2 compiled": ("parallel.pipeline=2", "parallel.microbatches=3", "compute.compile=default"),
    "2 sharded, compiled": (
        "parallel.fully_shard=true", "parallel.recompute=true", "data.gradient_accumulation_steps=2",
        "compute.compile=default",
    ),
}  # fmt: skip

Values = NDArray[np.float32]


class Trained(NamedTuple):
    """Results of a run of a few steps."""

    losses: list[float]
    norms: list[float]
    gradients: dict[str, Values]
    state: dict[str, Values]
    accuracy: float
    sent: dict[str, int]
    """Bytes that this rank sent in its second step, by dimension."""
    by_formula: dict[str, int]


def trained(world: World, *systems: System) -> list[Trained]:
    return [_trained(world, system) for system in systems]


def trained_compiled(world: World, *systems: System) -> list[Trained]:
    """Like `trained`, with compiled pieces."""
    with compiled_by(CompileCounterWithBackend("aot_eager")) as graphs:
        found = trained(world, *systems)
    # embeddings or heads, both ends of a layer, and each again in evaluation
    assert graphs.frame_count >= 6 * len(systems)
    return found


def _trained(world: World, system: System) -> Trained:
    sampler = sampler_of(system)
    trainer = make_trainer(system, world, 11, sampler)
    gradients: dict[str, Values] = {}
    step = trainer.optimizer.step

    def spy(*arguments: Any) -> None:
        if not gradients:
            gradients.update(whole(_gradients(trainer)))
        step(*arguments)

    trainer.optimizer.step = spy  # type: ignore[method-assign]
    rank = system.layout.coordinate(world.rank).data
    steps = Loader(sampler, rank, world.device).steps(range(STEPS))
    reports, sent, by_formula = [], {}, {}
    for number, loaded in enumerate(steps):
        if isinstance(trainer, LayoutTrainer) and number == 1:
            with Traffic(trainer.groups) as traffic:
                reports.append(trainer.step(number, loaded.parts))
            sent, by_formula = traffic.sent, expected_bytes(system, trainer, loaded)
        else:
            reports.append(trainer.step(number, loaded.parts))
    found = Trained(
        [world.sum(report.loss).item() for report in reports],
        [report.norm.item() for report in reports],
        gradients,
        whole(trainer.state()),
        make_evaluator(system, open_data(system)[1], trainer, world).accuracy(trainer.model, "fp32"),
        sent,
        by_formula,
    )
    trainer.close()
    return found


def expected_bytes(system: System, trainer: LayoutTrainer, step: LoadedStep) -> dict[str, int]:
    shares = system.layout.token_shares
    tokens = sum(math.ceil(len(part.batch.tokens_T) / shares) * shares for part in step.parts)
    if trainer.pipeline is not None:
        tokens = len(step.parts) * trainer.pipeline.tokens
    if not system.parallel.fully_shard:
        held = sum(local(parameter).numel() for parameter in trainer.parameters)
        assert held == stage_parameters(system.model.shape(), system.layout, trainer.groups.place)
    masked = sum(len(part.batch.masked_at_M) for part in step.parts)
    return sent_bytes(system, trainer.groups.place, tokens, masked)


def _gradients(trainer: Trainer) -> dict[str, Tensor]:
    if isinstance(trainer, LayoutTrainer):
        return {
            logical_name(name): parameter.grad
            for stage in trainer.model.children()
            for name, parameter in stage.named_parameters()
            if parameter.grad is not None
        }
    fused = trainer.model.fused_parameters()
    return {
        name: part
        for whole, parameter in trainer.model.named_parameters()
        if parameter.grad is not None
        for name, part in logical(whole, parameter.grad, fused.get(parameter, 1)).items()
    }


def whole(tensors: dict[str, Tensor]) -> dict[str, Values]:
    """Whole tensors of all ranks by name; ranks that hold the same must hold the same to the last bit."""
    full = {
        name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone().numpy()
        for name, tensor in tensors.items()
    }
    everyone: list[dict[str, Values]] = [{}] * distributed.get_world_size()
    distributed.all_gather_object(everyone, full)
    merged: dict[str, Values] = {}
    for own in everyone:
        for name, values in own.items():
            assert np.array_equal(merged.setdefault(name, values), values), name
    return merged


def check(
    tiny: Tiny,
    names: list[str],
    optimizer: str,
    ranks: int = 4,
    layouts: Layouts = LAYOUTS,
    train: Callable[..., list[Trained]] = trained,
) -> None:
    def system(*overrides: str) -> System:
        return tiny(f"optimizer.name={optimizer}", "optimizer.learning_rate=0.01", *SHAPE, *overrides)

    ((alone,),) = run_ranks(1, trained, system("launch.ranks_per_node=1"))
    answers = run_ranks(ranks, train, *(system(f"launch.ranks_per_node={ranks}", *layouts[name]) for name in names))
    assert alone.losses[1] < alone.losses[0]
    for name, run in zip(names, answers[0], strict=True):
        assert run.losses == pytest.approx(alone.losses, abs=LOSS), name
        assert run.norms == pytest.approx(alone.norms, abs=LOSS), name
        for which, tolerance in (("gradients", GRADIENT), ("state", STATE)):
            ours, expected = getattr(run, which), getattr(alone, which)
            assert ours.keys() == expected.keys(), name
            for key, values in expected.items():
                assert ours[key] == pytest.approx(values, abs=tolerance), (name, key)
        assert run.accuracy == alone.accuracy, name
    for rank in answers:
        for name, run in zip(names, rank, strict=True):
            assert run.sent == run.by_formula, name
            assert run.sent or name.startswith("4x1x1")
    assert all([run.losses for run in rank] == [run.losses for run in answers[0]] for rank in answers)


def test_tensor_and_pipeline_parallel_lamb_is_lamb_on_one_rank(tiny: Tiny) -> None:
    check(tiny, ["1x2x2"], "lamb")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_pieces_of_a_split_model_take_the_steps_of_one_rank(tiny: Tiny, name: str) -> None:
    check(tiny, [name], "lamb", ranks=2, layouts=COMPILED, train=trained_compiled)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lamb", "adam"])
@pytest.mark.parametrize("first", [0, 4, 8])
def test_every_layout_takes_the_steps_of_one_rank(tiny: Tiny, first: int, optimizer: str) -> None:
    check(tiny, list(LAYOUTS)[first : first + 4], optimizer)


@pytest.mark.slow
def test_bf16_trains_equally_in_a_layout_that_sends_it_between_stages(tiny: Tiny) -> None:
    systems = [tiny(*SHAPE, "launch.ranks_per_node=4", "precision.compute=bf16", *LAYOUTS[name])
               for name in ("4x1x1", "1x2x2")]  # fmt: skip
    alone, split = run_ranks(4, trained, *systems)[0]
    assert split.losses == pytest.approx(alone.losses, rel=0.02)  # bf16 keeps 8 bits
    assert split.losses != alone.losses
    assert split.sent == split.by_formula
