"""Samples are sent between real processes and arrive unchanged."""

from pathlib import Path

import numpy as np

from bertbench.balance.cost import BERT_LARGE
from bertbench.balance.plan import Balance, Planner, Shares, StepPlan, bytes_received, words_sent
from bertbench.config import System
from bertbench.data.store.columns import pack
from bertbench.data.store.dataset import Dataset
from bertbench.distributed.world import World
from bertbench.loading.batch import read_samples
from bertbench.loading.loader import make_exchange
from bertbench.training.build import make_sampler
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.tiny import samples_of


def check_exchanges(world: World, systems: dict[int, System], folder: Path) -> list[list[int]]:
    return [check_exchange(world, system, folder, group) for group, system in systems.items()]


def check_exchange(world: World, system: System, folder: Path, group: int) -> list[int]:
    dataset = Dataset.open(folder, "train")
    sampler, samples = make_sampler(system, dataset, 5), dataset.map_samples()
    exchange = make_exchange(system, sampler, world)
    assert exchange is not None
    for step in range(3):
        plan = sampler.planner.plan(step)
        ids, content = exchange.gathered(plan, read_samples(samples, plan.drawn.of(world.rank)))
        assert samples_of(content) == samples_of(read_samples(samples, ids))
        assert set(plan.assigned.of(world.rank)) <= set(ids)
    assert len(ids) == group * 3
    return sorted(ids.tolist())


def test_ranks_of_a_node_or_all_hand_each_other_their_samples(tiny: Tiny, tiny_folder: Path) -> None:
    methods = {2: "presort", 4: "global_exchange"}
    systems = {ranks: tiny(f"data.balance={name}", "hardware.number_of_nodes=2") for ranks, name in methods.items()}
    of_node, of_all = zip(*run_ranks(4, check_exchanges, systems, tiny_folder), strict=True)
    assert of_node[0] == of_node[1]
    assert of_node[2] == of_node[3]
    assert not set(of_node[0]) & set(of_node[2])
    assert of_all[0] == of_all[1] == of_all[2] == of_all[3]


def test_bytes_on_the_wire_are_counted_by_hand() -> None:
    # tokens 5 6 7 8, masked 1 2 1 2, one sample a rank: n + 2 m + (n + 1) / 2 rounded up = 10, 14, 13, 17 words
    entries = pack(np.array([5, 6, 7, 8]), np.array([1, 2, 1, 2]))
    drawn = Shares(np.arange(4), np.arange(5))
    assert words_sent(entries, drawn).tolist() == [10, 14, 13, 17]
    for method, expected in (
        ("none", 0),
        ("planned", 0),
        ("presort", 2 * 1 * (14 + 17) / 2),  # all ranks of a node send as many as its largest
        ("global_exchange", 2 * 3 * 17),
    ):
        made = Planner(entries, Balance(method, BERT_LARGE), 4, 5, nodes=2, ranks_per_node=2)
        assert bytes_received(entries, made, StepPlan(drawn, drawn)) == expected
