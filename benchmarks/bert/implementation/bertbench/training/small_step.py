"""Take one step of a small model like the run's, so that two arithmetics can be compared before the clock starts.

The model has two of the run's layers, takes one synthetic batch, and drops nothing. If the run shards, so does the
check, and a second step reads the weights that the ranks gathered after the first. `masks_problem` alone takes steps
with dropout: it replays a recorded step, because a stale seed would produce the same mask for the whole run.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bertbench.config import System
from bertbench.config.optimizer import Communication
from bertbench.distributed.sliced_tensor import SlicedTensor
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.loading.bins import Bins
from bertbench.loading.filler import fill_of, size_of
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.linear import Products
from bertbench.model.options import without_fp8
from bertbench.model.products import Shape
from bertbench.training.whole_trainer import WholeTrainer

if TYPE_CHECKING:
    from bertbench.training.recording import Record

_SEED = 5
_LAYERS = 2
_SAMPLES = 8
_LENGTH = 64
_REPEATED = 1e-6  # of a loss: a forward pass has no atomic additions, so the same masks give the same loss
StepResult = dict[str, Tensor]
"""The results of a step by name: the loss, the first moments, and the updates of weights; whole on every rank."""


def take_step(system: System, world: World, products: dict[Shape, Products]) -> StepResult:
    """Take one step, two if weights are sharded, of a trainer like the run's, but smaller. Collective."""
    small = _small(system)
    part, batch = _small_part(small, world)
    trainer: WholeTrainer
    if small.compute.compile == "graphs":
        from bertbench.training.graph_trainer import GraphTrainer  # noqa: PLC0415 - for few runs

        bins = Bins([size_of(batch)], small.model.max_positions)
        trainer = GraphTrainer(small, world, _SEED, bins, None, products)
        batch = bins.fill(batch)
    else:
        trainer = WholeTrainer(small, world, _SEED, None, products)
        batch = fill_of(small)(batch)
    before = {name: tensor.clone() for name, tensor in trainer.state().items() if name.startswith("model.")}
    loaded = LoadedPart(part, batch.to(world.device))
    for number in range(2 if small.optimizer.sharded else 1):
        report = trainer.step(number, [loaded])
    state = {name: tensor for name, tensor in trainer.state().items() if not name.endswith(".second")}
    result = {name: tensor.clone() for name, tensor in state.items() if not isinstance(tensor, SlicedTensor)}
    if small.optimizer.sharded:
        slices = {name: tensor for name, tensor in state.items() if isinstance(tensor, SlicedTensor)}
        result |= _whole_tensors(slices, world)
    trainer.close()
    for name, weight in before.items():
        result[name] -= weight  # the update
    return {"loss": report.loss.detach().clone(), **result}


def _whole_tensors(slices: dict[str, SlicedTensor], world: World) -> dict[str, Tensor]:
    """Return whole tensors, given this rank's slice of each, if it has one. Collective."""
    shapes: dict[str, torch.Size] = {}
    for shapes_of_rank in world.from_all({name: tensor.shape for name, tensor in slices.items()}):
        shapes |= shapes_of_rank
    whole = {}
    for name in sorted(shapes):
        tensor = torch.zeros(shapes[name], device=world.device)
        for offsets, values in slices[name].rectangles if name in slices else []:
            place = [slice(offset, offset + size) for offset, size in zip(offsets, values.shape, strict=True)]
            tensor[tuple(place)] = values
        whole[name] = world.sum(tensor)
    return whole


def _small_part(small: System, world: World) -> LoadedPart:
    """Return this rank's samples for a checked step, in main memory."""
    generator = torch.Generator().manual_seed(_SEED + world.rank)
    batch = synthetic(_SAMPLES, length_of(small), small.model.vocab_size, generator)
    masked = len(batch.masked_at_M)
    return LoadedPart(Part(np.arange(_SAMPLES), 1 / (world.size * masked), 1 / (world.size * _SAMPLES)), batch)


def masks_problem(system: System, world: World, products: dict[Shape, Products], record: "Record | None" = None) -> str:
    """Return what is wrong with the dropout masks of a recorded step; empty if nothing is. Collective.

    With a learning rate of 0, replays of one batch differ only in their masks. Each replay must have new masks, and
    after setting the same seed, the same masks must come again. `record` replaces CUDA graphs in tests.
    """
    from bertbench.training.graph_trainer import GraphTrainer  # noqa: PLC0415 - for few runs

    if system.model.hidden_dropout == 0 and system.model.attention_dropout == 0:
        return ""
    small = _without_learning(system)
    part, batch = _small_part(small, world)
    bins = Bins([size_of(batch)], small.model.max_positions)
    trainer = GraphTrainer(small, world, _SEED, bins, None, products, record)
    loaded = LoadedPart(part, bins.fill(batch).to(world.device))

    def replayed_loss() -> float:
        return trainer.step(0, [loaded]).loss.item()

    torch.manual_seed(_SEED)
    first = replayed_loss()
    second = replayed_loss()
    torch.manual_seed(_SEED)
    repeated = replayed_loss()
    trainer.close()
    allowed = _REPEATED * abs(first)
    if abs(second - first) <= allowed:
        return f"dropout drops the same numbers in every replay: the loss of one batch is {first:g} twice"
    if not abs(repeated - first) <= allowed:
        return f"dropout doesn't follow the seed: the loss of one batch is {first:g}, then {repeated:g}"
    return ""


def length_of(system: System) -> int:
    """Return the length of the samples: attention on a GPU may be wrong only for long sequences."""
    longest = system.model.max_positions
    return longest if system.launch.device == "cuda" else min(_LENGTH, longest)


def _small(system: System) -> System:
    """Return the system with two layers and few samples, without dropout or anything that a first step doesn't need."""
    changes: dict[str, dict[str, Any]] = {
        "model": {
            "layers": min(_LAYERS, system.model.layers),
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "checkpoint": None,
        },
        "data": {"local_batch": _SAMPLES, "global_batch_size": None, "gradient_accumulation_steps": 1},
        "schedule": {"warmup_steps": 0, "start_warmup_step": 0},
        "optimizer": {"ema_decay": 0.0},
    }
    sections = {name: getattr(system, name).model_copy(update=change) for name, change in changes.items()}
    return system.model_copy(update={**sections, "communication": _small_sum(system)})


def _small_sum(system: System) -> Communication:
    """Return how ranks sum in a checked step: in bf16 if the run does so, else in fp32.

    Triton's optimizer reads such sums itself. Steps with torch's optimizer sum in bf16, too, to be compared with it.
    """
    if system.communication.compression == "bf16":
        return Communication(compression="bf16")
    return Communication()


def _without_learning(system: System) -> System:
    """Return the small system with the dropout of `system`, and with a learning rate of 0.

    Nothing in it changes from step to step. It doesn't use fp8, whose scales would change; masks don't depend on the
    format.
    """
    small = _small(system)
    changes: dict[str, dict[str, Any]] = {
        "model": {
            "hidden_dropout": system.model.hidden_dropout,
            "attention_dropout": system.model.attention_dropout,
        },
        "optimizer": {"learning_rate": 0.0},
        "schedule": {"end_learning_rate": 0.0},
        "precision": {"compute": without_fp8(system.precision.compute)},
    }
    sections = {name: getattr(small, name).model_copy(update=change) for name, change in changes.items()}
    return small.model_copy(update=sections)
