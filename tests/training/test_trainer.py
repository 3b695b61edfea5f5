"""The step on real gloo processes: results that must not depend on how the work is split."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import Loader
from bertbench.loading.sampler import Sampler
from bertbench.model.bert import Bert
from bertbench.optim.adam import MultiTensorAdam
from bertbench.training.evaluator import Evaluator
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.training.steps import SEED, batch_of, loaded, sampler_of, trained, whole_trainer

# fp32 sums in another order: 1e-6 of a loss near 9, growing a little over 5 steps
LOSS_TOLERANCE = 2e-5
EQUAL = "data.equal_counts=true"


def losses(world: World, *systems: System, seed: int = SEED) -> list[list[float]]:
    """Losses of the first steps of each system, as metrics.jsonl has them."""
    return [one.losses for one in trained(world, 5, *systems, seed=seed)]


def accuracy(world: World, system: System) -> float:
    with whole_trainer(system, world) as trainer:
        return Evaluator(open_data(system)[1], 5, world).accuracy(trainer.model, "fp32")


def test_losses_depend_neither_on_ranks_nor_on_accumulation(tiny: Tiny) -> None:
    names = ("optimizer.name=adam", "optimizer.name=lamb")
    one = "launch.ranks_per_node=1"
    (alone_and_in_parts,) = run_ranks(
        1, losses, *(tiny(name, one, f"data.gradient_accumulation_steps={n}") for name in names for n in (1, 2))
    )
    on_two, on_two_again = run_ranks(
        2, losses, *(tiny(name, f"data.gradient_accumulation_steps={n}") for name in names for n in (1, 3))
    )
    assert on_two == on_two_again
    for first in (0, 2):  # adam, lamb
        alone = alone_and_in_parts[first]
        assert alone[-1] < alone[0]
        for other in (alone_and_in_parts[first + 1], on_two[first], on_two[first + 1]):
            assert other == pytest.approx(alone, abs=LOSS_TOLERANCE)
    assert on_two[0] != pytest.approx(on_two[2], abs=1e-3)


def test_normalising_by_rank_is_the_mean_of_the_ranks_means(tiny: Tiny) -> None:
    by_rank = run_ranks(2, loss_of_uneven_step, tiny(EQUAL, "loss.normalize=rank"))[0]
    (means,) = run_ranks(1, means_of_uneven_step, tiny(EQUAL))
    assert by_rank == pytest.approx(sum(means) / 2, abs=LOSS_TOLERANCE)
    globally = run_ranks(2, loss_of_uneven_step, tiny(EQUAL))[0]
    assert globally != pytest.approx(by_rank, abs=LOSS_TOLERANCE)


def uneven_step(sampler: Sampler) -> int:
    """A step in which two ranks have different numbers of masked tokens."""
    masked = sampler.dataset.masked
    return next(
        step
        for step in range(99)
        if len({masked(sampler.planner.plan(step).assigned.of(rank)).sum() for rank in (0, 1)}) == 2
    )


def loss_of_uneven_step(world: World, system: System) -> float:
    sampler = sampler_of(system)
    step = uneven_step(sampler)
    with whole_trainer(system, world) as trainer:
        (loaded,) = Loader(sampler, world.rank, world.device).steps(range(step, step + 1))
        return world.sum(trainer.step(0, loaded.parts).loss).item()


def means_of_uneven_step(world: World, system: System) -> list[float]:
    """Each half's mean masked-token loss plus mean sentence-pair loss, as the reference defines them."""
    sampler, means = sampler_of(system), []
    step = uneven_step(sampler)
    with whole_trainer(system, world) as trainer:
        for rank in (0, 1):
            batch = batch_of(sampler, sampler.planner.plan(step).assigned.of(rank))
            scores = trainer.model(*batch.inputs)
            masked_lm = functional.cross_entropy(scores.masked_lm_MV, batch.masked_labels_M)
            means.append((masked_lm + functional.cross_entropy(scores.next_sentence_S2, batch.next_sentence_S)).item())
    return means


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(tiny: Tiny) -> None:
    system = tiny("model.hidden_dropout=0.1", "model.attention_dropout=0.1")
    first, again = run_ranks(2, losses, system, system)[0]
    assert first == again
    assert [first] != run_ranks(2, partial(losses, seed=SEED + 1), system)[0]


def test_accuracy_counts_every_held_out_sample_once_on_any_number_of_ranks(tiny: Tiny) -> None:
    answers = {ranks: run_ranks(ranks, accuracy, tiny(f"launch.ranks_per_node={ranks}")) for ranks in (1, 2, 3)}
    assert len({value for values in answers.values() for value in values}) == 1


def test_warm_up_leaves_weights_and_optimizer_as_they_were(tiny: Tiny) -> None:
    run_ranks(2, check_untouched, tiny())


def check_untouched(world: World, system: System) -> None:
    fresh = Bert(system.model.shape())
    fresh.initialize(torch.Generator().manual_seed(derive(SEED, "weights")))
    with whole_trainer(system, world) as trainer:
        torch.testing.assert_close(trainer.model.state_dict(), fresh.state_dict(), atol=0, rtol=0)
        optimizer = trainer.optimizer
        assert isinstance(optimizer, MultiTensorAdam)
        assert optimizer.steps == 0
        assert not any(moment.any() for name, moment in trainer.state().items() if name.startswith("optimizer."))
        assert all(parameter.grad is None for parameter in trainer.model.parameters())


@pytest.mark.slow
def test_half_precisions_train_close_to_fp32(tiny: Tiny) -> None:
    systems = [tiny("launch.ranks_per_node=1", f"precision.compute={kind}") for kind in ("fp32", "bf16", "fp16")]
    ((fp32, bf16, fp16),) = run_ranks(1, losses, *systems)
    assert bf16 != fp32 != fp16
    assert bf16 == pytest.approx(fp32, rel=0.02)  # bf16 keeps 8 bits
    assert fp16 == pytest.approx(fp32, rel=0.003)  # fp16 keeps 11


@pytest.mark.parametrize("settings", [("clip.max_norm=0.5",), ("optimizer.name=lamb", "optimizer.sharded=true")])
def test_an_overflow_on_one_rank_makes_all_skip_that_step_and_nothing_else(
    tiny: Tiny, settings: tuple[str, ...]
) -> None:
    common = ("communication.compression=fp16", "schedule.warmup_steps=3", "clip.mode=bucket")
    answers = run_ranks(2, with_and_without_overflow, tiny(*common, *settings))
    assert answers[0] == answers[1], "ranks agree"
    (rates, scales, norms, weights), (plain_rates, plain_scales, _, plain_weights) = answers[0]
    assert scales == [8192.0, 8192.0, 4096.0, 4096.0]  # 4096 times two ranks, halved by the second step
    assert plain_scales == [8192.0] * 3
    assert [math.isfinite(norm) for norm in norms] == [True, False, True, True]
    assert rates == [plain_rates[0], plain_rates[1], plain_rates[1], plain_rates[2]]  # what the skipped step would take
    assert weights[0] == weights[1]
    # half the scale is the same numbers in fp16, but for the very smallest
    assert weights[-1] == pytest.approx(plain_weights[-1], abs=1e-5)


def with_and_without_overflow(world: World, system: System) -> list[tuple[list[Any], ...]]:
    """Rates, scales, norms and weights of three steps; once with an overflow on rank 1 in between."""
    answers = []
    for batches in ((0, "overflow", 1, 2), (0, 1, 2)):
        given, reports, weights = list(loaded(world, system, 3)), [], []
        with whole_trainer(system, world) as trainer:
            for number, batch in enumerate(batches):
                handle = None
                if batch == "overflow" and world.rank == 1:
                    handle = trainer.model.pooler.weight.register_hook(lambda gradient: gradient * torch.inf)
                reports.append(trainer.step(number, given[0 if batch == "overflow" else batch].parts))
                weights.append(parameters_to_vector(trainer.model.parameters()).tolist())
                if handle:
                    handle.remove()
        numbers = [[float(getattr(report, name)) for report in reports] for name in ("rate", "loss_scale", "norm")]
        norms = [[value if math.isfinite(value) else math.inf for value in row] for row in numbers]
        answers.append((*norms, weights))
    return answers
