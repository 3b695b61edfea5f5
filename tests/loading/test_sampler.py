import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bertbench.balance.plan import Planner, StepPlan
from bertbench.common.errors import DataError
from bertbench.common.seeding import permuted
from bertbench.data.store.dataset import Dataset
from bertbench.loading.loader import Loader
from bertbench.loading.sampler import Sampler
from bertbench.training.build import make_sampler
from tests.conftest import Tiny


@pytest.mark.parametrize("size", [1, 2, 3, 13, 64, 1_000])
def test_a_permutation_reaches_every_place_once(size: int) -> None:
    assert sorted(permuted(np.arange(size), size, 5).tolist()) == list(range(size))


def test_a_permutation_never_changes() -> None:
    assert permuted(np.arange(13), 64, 5).tolist() == [1, 38, 9, 17, 35, 18, 22, 30, 46, 23, 61, 57, 8]


@pytest.fixture
def sampler(tiny: Tiny, tiny_folder: Path) -> Callable[..., Sampler]:
    """A sampler of the tiny system, global batch 12, with overrides."""
    return lambda *overrides: make_sampler(tiny(*overrides), Dataset.open(tiny_folder, "train"), 99)


@pytest.mark.parametrize(("normalize", "equal_counts"), [("global", "false"), ("global", "true"), ("rank", "true")])
def test_the_weights_of_all_losses_add_up_to_one(
    sampler: Callable[..., Sampler], normalize: str, equal_counts: str
) -> None:
    sampling = sampler(
        "data.gradient_accumulation_steps=3", f"loss.normalize={normalize}", f"data.equal_counts={equal_counts}"
    )
    plan = sampling.planner.plan(4)
    parts = [part for rank in range(2) for part in sampling.share(plan, rank)]
    assert sum(part.masked_lm_weight * sampling.dataset.masked(part.ids).sum() for part in parts) == pytest.approx(1)
    assert sum(part.next_sentence_weight * len(part.ids) for part in parts) == pytest.approx(1)
    assert (len({part.masked_lm_weight for part in parts}) == 1) == (normalize == "global")


def test_a_rank_with_fewer_samples_than_parts_has_fewer_parts(sampler: Callable[..., Sampler]) -> None:
    sampling = sampler("data.gradient_accumulation_steps=6")
    ids = np.arange(12)
    uneven = StepPlan(*2 * [type(sampling.planner.plan(0).assigned)(ids, np.array([0, 2, 12]))])
    assert [[len(part.ids) for part in sampling.share(uneven, rank)] for rank in (0, 1)] == [[1, 1], [2, 2, 2, 2, 1, 1]]


def test_the_loader_returns_every_step_in_order(sampler: Callable[..., Sampler]) -> None:
    sampling = sampler()
    steps = list(Loader(sampling, 1, torch.device("cpu")).steps(range(3, 8)))
    plans = [sampling.planner.plan(step) for step in range(3, 8)]
    assert [step.parts[0].part.ids.tolist() for step in steps] == [plan.assigned.of(1).tolist() for plan in plans]
    assert [len(step.parts[0].batch.tokens_T) for step in steps] == [
        sampling.dataset.lengths(plan.assigned.of(1)).sum() for plan in plans
    ]
    loads = [sampling.planner.loads(plan) for plan in plans]
    assert [step.load_efficiency for step in steps] == [load.mean() / load.max() for load in loads]


def test_an_error_of_the_loader_reaches_the_loop(sampler: Callable[..., Sampler]) -> None:
    sampling = sampler()

    class Broken(Planner):
        def plan(self, step: int) -> StepPlan:
            raise DataError("a shard is gone")

    broken = Broken.__new__(Broken)
    with pytest.raises(DataError, match="a shard is gone"):
        next(Loader(Sampler(sampling.dataset, broken, 1, "global"), 0, torch.device("cpu")).steps(range(3)))


def test_the_loading_thread_takes_its_rank_s_gpu_before_it_loads(
    sampler: Callable[..., Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no GPU: the sampler ends the loading as soon as it begins."""
    gpu = torch.device("cuda", 3)
    begun: list[tuple[str, object]] = []

    def note(what: object) -> None:
        begun.append((threading.current_thread().name, what))

    class Ending(Planner):
        def plan(self, step: int) -> StepPlan:
            note("plan")
            raise DataError("the end")

    monkeypatch.setattr(torch.cuda, "set_device", note)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    loader = Loader(Sampler(sampler().dataset, Ending.__new__(Ending), 1, "global"), 0, gpu)
    with pytest.raises(DataError, match="the end"):
        next(loader.steps(range(1)))
    (thread, first), (thread_of_plan, second) = begun
    assert (first, second) == (gpu, "plan")
    assert thread == thread_of_plan != threading.current_thread().name
