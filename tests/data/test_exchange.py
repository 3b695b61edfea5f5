"""Samples cross between real processes and arrive as they were."""

from collections.abc import Callable
from pathlib import Path

from bertbench.balance.wire import BYTES_OF_WORD, bytes_received, words
from bertbench.config import System
from bertbench.data.batch import read
from bertbench.data.dataset import Dataset
from bertbench.train import make_exchange, make_sampler
from bertbench.world import World
from tests.ranks import run_ranks
from tests.tiny import samples_of


def check_exchange(world: World, system: System, folder: Path, group: int) -> list[int]:
    dataset = Dataset.open(folder, "train")
    sampler, samples = make_sampler(system, dataset, 5), dataset.map_samples()
    exchange = make_exchange(system, sampler, world)
    assert exchange is not None
    for step in range(3):
        plan = sampler.planner.plan(step)
        ids, content = exchange.gathered(plan, read(samples, plan.drawn.of(world.rank)))
        assert samples_of(content) == samples_of(read(samples, ids))
        assert set(plan.dealt.of(world.rank)) <= set(ids)
    assert len(ids) == group * 3
    return sorted(ids.tolist())


def test_a_node_s_ranks_hand_each_other_their_samples(tiny: Callable[..., System], tiny_folder: Path) -> None:
    system = tiny("data.balance=presort", "hardware.number_of_nodes=2")
    first, second, third, fourth = run_ranks(4, check_exchange, system, tiny_folder, 2)
    assert first == second
    assert third == fourth
    assert not set(first) & set(third)


def test_all_ranks_hand_each_other_their_samples(tiny: Callable[..., System], tiny_folder: Path) -> None:
    system = tiny("data.balance=global_exchange", "hardware.number_of_nodes=2")
    answers = run_ranks(4, check_exchange, system, tiny_folder, 4)
    assert answers[0] == answers[1] == answers[2] == answers[3]


def test_bytes_on_the_wire_are_counted_by_hand(tiny: Callable[..., System], tiny_folder: Path) -> None:
    assert words(tokens=7, masked=2, samples=2) == 7 + 2 * 2 + 5  # 9 half words: 7 segments, 2 pairs
    dataset = Dataset.open(tiny_folder, "train")
    for method, others in (("none", 0), ("planned", 0), ("presort", 1), ("global_exchange", 3)):
        sampler = make_sampler(tiny(f"data.balance={method}", "hardware.number_of_nodes=2"), dataset, 5)
        plan = sampler.planner.plan(0)
        drawn = [plan.drawn.of(rank) for rank in range(4)]
        sent = [words(int(dataset.lengths(ids).sum()), int(dataset.masked(ids).sum()), 3) for ids in drawn]
        largest = [max(sent)] if others == 3 else [max(sent[:2]), max(sent[2:])]
        lengths, masked = dataset.lengths(plan.drawn.ids_S), dataset.masked(plan.drawn.ids_S)
        expected = BYTES_OF_WORD * others * sum(largest) / len(largest)
        assert bytes_received(sampler.planner, plan.drawn, lengths, masked) == expected
