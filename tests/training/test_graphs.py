"""Steps of fixed sizes, replayed from a tape: nothing in them may depend on the host or on what a batch holds."""

import gc
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.nn.utils import parameters_to_vector

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.bins import Bins
from bertbench.loading.filler import filled_to_size, size_of
from bertbench.loading.loader import LoadedPart, LoadedStep, Loader
from bertbench.training import recording
from bertbench.training.graph_trainer import GraphTrainer
from bertbench.training.whole_trainer import WholeTrainer
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.training.as_on_a_gpu import as_on_a_gpu
from tests.training.replayed_steps import (
    GRAPHS,
    bin_sampler,
    losses,
    losses_of_steps,
    plain_and_replayed,
    raw_batches,
)
from tests.training.steps import SEED, loaded
from tests.training.tape import Operations, tape
from tests.training.test_synchronisation import READING, noting

# fp32 sums over batches with filler, in another order, of a loss near 5 over 5 steps
TOLERANCE = 2e-5
ALONE = ("launch.ranks_per_node=1", *GRAPHS)


@pytest.mark.parametrize(("ranks", "choices"), [
    (1, ["data.gradient_accumulation_steps=2", "optimizer.name=lamb", "clip.mode=after"]),
    (2, ["optimizer.name=adam", "clip.mode=bucket"]),
    (2, ["optimizer.name=lamb", "optimizer.sharded=true", "clip.mode=before", "data.equal_counts=true"]),
    (2, ["data.balance=packed"]),
])  # fmt: skip
def test_replayed_steps_of_fixed_sizes_train_as_plain_ones(ranks: int, choices: list[str], tiny: Tiny) -> None:
    common = (f"launch.ranks_per_node={ranks}", *choices)
    for plain, replayed in run_ranks(ranks, plain_and_replayed, tiny(*common), tiny(*common, *GRAPHS)):
        assert replayed == pytest.approx(plain, abs=TOLERANCE, rel=1e-4)


def test_a_rank_without_the_memory_for_graphs_lets_all_ranks_train_without_them(tiny: Tiny) -> None:
    common = ("launch.ranks_per_node=2", "data.gradient_accumulation_steps=2")
    for plain, replayed in run_ranks(2, plain_and_replayed, tiny(*common), tiny(*common, *GRAPHS), 1):
        assert replayed == pytest.approx(plain, abs=TOLERANCE, rel=1e-4)


@pytest.mark.parametrize(("launching", "records"), [(0.5, True), (2.0, False)])
def test_steps_are_recorded_if_that_saves_time_and_train_the_same_if_not(
    launching: float, records: bool, tiny: Tiny
) -> None:
    common = ("launch.ranks_per_node=2", "data.gradient_accumulation_steps=2")
    for plain, found, recordings in run_ranks(2, plain_and_if_faster, tiny(*common), tiny(*common, *GRAPHS), launching):
        assert bool(recordings) == records
        assert found == pytest.approx(plain, abs=TOLERANCE, rel=1e-4)


def plain_and_if_faster(
    world: World, plain: System, graphs: System, launching: float
) -> tuple[list[float], list[float], int]:
    """Losses of a plain trainer, and of one that records where launches take more than a share; and its recordings."""
    expected = losses(world, WholeTrainer(plain, world, SEED), plain)
    sampler = bin_sampler(graphs)
    steps = list(Loader(sampler, world.rank, world.device).steps(range(5)))
    recordings = 0

    def record(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        nonlocal recordings
        recordings += 1
        return tape(work)

    with as_on_a_gpu(), mock.patch.object(recording, "_LAUNCHING", launching):
        trainer = GraphTrainer(graphs, world, SEED, sampler.bins, record=record, only_if_faster=True)
        return expected, losses_of_steps(world, trainer, steps), recordings


SHARDED = (
    "launch.ranks_per_node=2", "optimizer.name=lamb", "optimizer.sharded=true", "clip.mode=before",
    "communication.bucket_mb=0.003",
)  # fmt: skip


@pytest.mark.parametrize("parts", [1, 2])
def test_every_rank_reads_the_updated_weights_after_a_replay(parts: int, tiny: Tiny) -> None:
    common = (*SHARDED, f"data.gradient_accumulation_steps={parts}")
    (plain, first), (_, second) = run_ranks(2, weights_of_both, tiny(*common), tiny(*common, *GRAPHS))
    assert first == second, "each rank has the other's slices"
    assert first == pytest.approx(plain, abs=1e-4)


def weights_of_both(world: World, plain: System, graphs: System) -> tuple[list[float], list[float]]:
    """Weights after some steps, as an evaluation reads them, of a plain trainer and of one that replays."""
    sampler = bin_sampler(graphs)
    steps = list(Loader(sampler, world.rank, world.device).steps(range(3)))
    expected = weights_after(WholeTrainer(plain, world, SEED), list(loaded(world, plain, 3)))
    with as_on_a_gpu():
        return expected, weights_after(GraphTrainer(graphs, world, SEED, sampler.bins, record=tape), steps)


def weights_after(trainer: WholeTrainer, steps: Sequence[LoadedStep]) -> list[float]:
    for number, step in enumerate(steps):
        trainer.step(number, step.parts)
    with trainer.evaluating():
        weights: list[float] = parameters_to_vector(trainer.model.parameters()).tolist()
    trainer.close()
    return weights


def test_a_batch_trains_equally_in_every_bin_and_its_operations_depend_on_the_bin_alone(
    tiny: Tiny,
) -> None:
    run_ranks(1, with_bins, check_bins, tiny(*ALONE, "optimizer.name=lamb"))


def with_bins(world: World, check: Callable[[World, System, Bins], None], *systems: System) -> None:
    for system in systems:
        check(world, system, bin_sampler(system).bins)


def check_bins(world: World, system: System, bins: Bins) -> None:
    (part, first), (_, second), *_ = raw_batches(world, system, 2)
    sizes = [size for size in bins.all if bins.holds(size, size_of(first)) and bins.holds(size, size_of(second))]
    assert len(sizes) >= 3
    found = []
    with as_on_a_gpu():
        trainer = GraphTrainer(system, world, SEED, bins)
        weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
        for size in sizes:
            shapes = []
            for batch in (second, first):
                trainer.model.load_state_dict(weights)
                trainer.optimizer.reset()
                loaded = LoadedPart(part, filled_to_size(batch, size))
                with Operations() as operations:
                    report = trainer.step(0, [loaded])
                shapes.append(operations.shapes)
            assert shapes[0] == shapes[1], "what runs must not depend on what a batch holds"
            found.append((report.loss.item(), report.norm.item(), trainer.model.pooler.weight.sum().item()))
        trainer.close()
    for one in found[1:]:
        assert one == pytest.approx(found[0], abs=1e-5)


_UNRECORDABLE = READING | {"aten::lift_fresh", "aten::_unique2", "aten::unique_dim", "aten::bincount"}
"""Operators that a CUDA graph can't record: they bring numbers from the host, or their answer's shape to it."""


def test_recorded_steps_don_t_need_the_host(tiny: Tiny) -> None:
    choices = (("optimizer.name=lamb",), ("optimizer.name=adam", "data.gradient_accumulation_steps=2"))
    run_ranks(1, with_bins, check_recorded, *(tiny(*ALONE, *choice) for choice in choices))


def check_recorded(world: World, system: System, bins: Bins) -> None:
    noted: list[str] = []

    def record(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        with noting(noted, _UNRECORDABLE):
            work()
        return work

    with as_on_a_gpu():
        GraphTrainer(system, world, SEED, bins, record=record).close()
    assert noted == []


def test_a_closed_trainer_releases_its_graphs_before_the_process_group_ends(tiny: Tiny) -> None:
    run_ranks(1, with_bins, check_lifetime, tiny(*ALONE))


def check_lifetime(world: World, system: System, bins: Bins) -> None:
    graphs: list[weakref.ref[partial[Tensor]]] = []

    def record(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        graph = partial(work)
        graphs.append(weakref.ref(graph))
        return graph

    with as_on_a_gpu():
        trainer = GraphTrainer(system, world, SEED, bins, record=record)
    assert all(graph() is not None for graph in graphs)
    trainer.close()
    gc.collect()
    assert len(graphs) == len(bins.all)
    assert all(graph() is None for graph in graphs)


@pytest.mark.slow
def test_an_epoch_of_bins_compiles_nothing_after_initialisation(tiny: Tiny) -> None:
    run_ranks(1, with_bins, check_compilations, tiny(*ALONE))


def check_compilations(world: World, system: System, bins: Bins) -> None:
    graphs, original = CompileCounter(), torch.compile

    def counted(function: Callable[..., object], dynamic: bool = False, fullgraph: bool = False, **_: object) -> object:
        return original(function, backend=graphs, dynamic=dynamic, fullgraph=fullgraph)

    with mock.patch.object(torch, "compile", counted):
        trainer = GraphTrainer(system, world, SEED, bins)
        after_init = graphs.frame_count
        assert after_init >= 4, "embeddings, both pieces of a layer, head, loss"
        (part, batch), *_ = raw_batches(world, system, 1)
        used = [filled_to_size(batch, size) for size in bins.all if bins.holds(size, size_of(batch))]
        used += [bins.fill(one.batch) for one in raw_batches(world, system, 12)]
        assert len({size_of(one) for one in used}) >= 3
        for one in used:
            trainer.step(0, [LoadedPart(part, one)])
        trainer.close()
    assert graphs.frame_count == after_init
