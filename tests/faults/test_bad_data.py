"""A shard that is damaged after `data verify` passed, and values that become NaN, in real runs."""

import math
import shutil
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from bertbench.common.errors import DataError
from bertbench.config import System
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.shards import write_split
from bertbench.distributed.world import World
from bertbench.loading.batch import SampleCheck
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import LoadedPart
from bertbench.runs.metrics import StepReport
from bertbench.training.build import make_sampler
from bertbench.training.whole_trainer import WholeTrainer
from tests.conftest import Tiny
from tests.faults.ended import SEED, trained
from tests.tiny import Sample, columns_of
from tests.whole_runs import metrics

# vocabulary of 9; lengths 4, 3, 5
SAMPLES = [
    Sample([1, 5, 6, 2], [0, 0, 0, 0], [1], [7], 0),
    Sample([1, 7, 2], [0, 0, 1], [1, 2], [3, 4], 1),
    Sample([1, 8, 4, 3, 2], [0, 0, 1, 1, 1], [3], [8], 1),
]


@pytest.fixture
def check(tmp_path: Path) -> SampleCheck:
    split = write_split(tmp_path / "train", [columns_of(SAMPLES)], shard_samples=2)
    entries = np.load(tmp_path / "train" / "index.npy")
    return SampleCheck(Dataset(tmp_path, "train", split, entries), 9)


@pytest.mark.parametrize(
    ("field", "place", "value"),
    [
        ("input_ids", 5, 9),
        ("input_ids", 5, -1),
        ("segment_ids", 5, 2),
        ("masked_lm_positions", 1, 3),
        ("masked_lm_positions", 1, -1),
        ("masked_lm_ids", 1, 9),
    ],
)
def test_a_damaged_sample_is_named_with_its_shard(check: SampleCheck, field: str, place: int, value: int) -> None:
    damaged = columns_of(SAMPLES)
    getattr(damaged, field)[place] = value
    with pytest.raises(DataError, match=r"part_00000\.h5: sample 1: "):
        check.require_valid(np.arange(3), damaged)


def test_the_samples_as_they_were_written_are_valid(check: SampleCheck) -> None:
    check.require_valid(np.arange(3), columns_of(SAMPLES))


def test_a_sample_of_another_size_than_the_index_promises_is_found(check: SampleCheck) -> None:
    with pytest.raises(DataError, match=r"part_00001\.h5: sample 0: "):
        check.require_valid(np.array([2]), columns_of(SAMPLES[:1]))


@pytest.fixture
def damaged(tiny: Tiny, tiny_folder: Path, tmp_path: Path) -> tuple[System, Path, int]:
    """A run of 6 steps over a copy of the tiny dataset, the shard of a sample of step 5, and its number there."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "data"))
    system = tiny(f"data.path={folder}")
    training, _ = open_data(system)
    sample = int(make_sampler(system, training, SEED).planner.plan(4).assigned.ids_S[0])
    for shard in training.split.shards:
        if sample < shard.samples:
            return system, folder / "train" / shard.name, sample
        sample -= shard.samples
    raise AssertionError


def flip(path: Path, sample: int, world: World) -> None:
    """Write a token that no vocabulary has into the file after its checks, without changing its size and time."""
    if world.leads:
        with h5py.File(path, "r+") as file:
            file["input_ids"][file["offsets"][sample]] = 31_000
    world.barrier()


@pytest.mark.faults
def test_a_shard_damaged_in_mid_epoch_ends_all_ranks_with_one_message(
    damaged: tuple[System, Path, int], tmp_path: Path
) -> None:
    system, path, sample = damaged
    ended = trained(tmp_path, system, partial(flip, path, sample))
    assert all(code not in (0, None) for code in ended.codes)
    message = ended.message()
    assert f"{path}: sample {sample}: found token id 31000, expected 0 to 88" in message
    assert message.startswith(("rank 0: ", "rank 1: "))


def poison(what: str, world: World) -> None:
    """On rank 1, make a weight or only a gradient NaN from step 4 on; with a gradient, that step has a finite loss."""
    if world.rank == 1:
        taken = WholeTrainer.step

        def poisoned(self: WholeTrainer, number: int, parts: list[LoadedPart]) -> StepReport:
            weight = self.model.pooler.weight
            if number == 3 and what == "weight":
                weight.detach()[0, 0] = math.nan
            if number == 3 and what == "gradient":
                weight.register_hook(lambda gradient: gradient * math.nan)
            return taken(self, number, parts)

        WholeTrainer.step = poisoned  # type: ignore[method-assign,assignment]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("what", "expected"),
    [("weight", "the loss of step 4 is nan on rank 1 of 2; "), ("gradient", "but its gradient is not finite")],
)
def test_a_nan_on_one_rank_stops_all_at_that_step(tiny: Tiny, tmp_path: Path, what: str, expected: str) -> None:
    ended = trained(tmp_path, tiny(), partial(poison, what))
    assert ended.codes == [1, 1]
    assert expected in ended.message()
    assert [row["step"] for row in metrics(tmp_path / "result_0.txt")] == [1, 2, 3, 4]
