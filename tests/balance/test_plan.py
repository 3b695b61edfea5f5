"""The promises that every method keeps, and the behaviour of each method."""

import numpy as np
import pytest

from bertbench.balance.plan import EXCHANGING, METHODS, VARYING, Method, efficiency
from bertbench.common.errors import ConfigError
from bertbench.data.store.columns import lengths_of
from tests.balance.populations import planner, wikipedia_index

ENTRIES = wikipedia_index(1_013)
BATCH = 28  # 2 nodes of 2 ranks, 7 samples each; 36 steps an epoch, 5 samples over


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_depends_on_seed_and_step_alone(method: Method) -> None:
    first, again, other = (planner(method, ENTRIES, BATCH, seed=seed) for seed in (11, 11, 12))
    walked = [first.plan(step) for step in range(40)]
    resumed = again.plan(39)
    assert resumed.assigned.ids_S.tolist() == walked[39].assigned.ids_S.tolist()
    assert resumed.assigned.bounds_R1.tolist() == walked[39].assigned.bounds_R1.tolist()
    assert other.plan(39).assigned.ids_S.tolist() != walked[39].assigned.ids_S.tolist()


@pytest.mark.parametrize("method", [method for method in METHODS if method != "packed"])
def test_an_epoch_has_every_sample_once_over_all_ranks_up_to_its_last_partial_step(method: Method) -> None:
    plans = [planner(method, ENTRIES, BATCH).plan(step) for step in range(1_013 // BATCH)]
    drawn = np.concatenate([plan.assigned.of(rank) for plan in plans for rank in range(4)])
    assert len(drawn) == len(np.unique(drawn)) == 1_013 // BATCH * BATCH
    for plan in plans:
        assert sorted(plan.assigned.ids_S) == sorted(plan.drawn.ids_S)


@pytest.mark.parametrize("method", METHODS)
def test_only_some_methods_vary_the_number_of_samples_on_a_rank(method: Method) -> None:
    counts = [np.diff(planner(method, ENTRIES, BATCH).plan(step).assigned.bounds_R1) for step in range(9)]
    assert all(count.min() >= 1 for count in counts)
    if method not in VARYING:
        assert all((count == 7).all() for count in counts)
    elif method != "planned_local":  # which may have no reason to, on two ranks a node
        assert not all((count == 7).all() for count in counts)
    if method in ("planned", "planned_local"):
        equal = [planner(method, ENTRIES, BATCH, equal_counts=True).plan(step) for step in range(9)]
        assert all((np.diff(plan.assigned.bounds_R1) == 7).all() for plan in equal)


@pytest.mark.parametrize("method", METHODS)
def test_samples_stay_with_the_rank_that_reads_them_unless_ranks_exchange(method: Method) -> None:
    plan = planner(method, ENTRIES, BATCH).plan(5)
    assert (plan.drawn is not plan.assigned) == (method in EXCHANGING)
    if method in ("presort", "stratified_presort"):  # and then they stay in the node
        for node in (0, 14):
            assert sorted(plan.drawn.ids_S[node : node + 14]) == sorted(plan.assigned.ids_S[node : node + 14])


def test_the_global_batch_doesn_t_depend_on_ranks() -> None:
    for method in METHODS:
        if method in ("packed", "planned_local"):
            continue
        batches = [
            sorted(planner(method, ENTRIES, BATCH, nodes, ranks).plan(40).assigned.ids_S)
            for nodes, ranks in ((1, 1), (2, 7), (4, 1))
        ]
        assert batches[0] == batches[1] == batches[2]


def test_a_method_whose_order_depends_on_the_world_refuses_another_one() -> None:
    planner("planned", ENTRIES, BATCH, nodes=2).check_world(nodes=7, ranks=28)
    planner("planned_local", ENTRIES, BATCH, nodes=2, ranks=7).check_world(nodes=2, ranks=4)
    with pytest.raises(ConfigError, match="4 nodes"):
        planner("planned_local", ENTRIES, BATCH, nodes=2).check_world(nodes=4, ranks=4)
    with pytest.raises(ConfigError, match="7 ranks"):
        planner("packed", ENTRIES, BATCH).check_world(nodes=2, ranks=7)


def test_a_batch_larger_than_the_data_can_t_be_stratified() -> None:
    with pytest.raises(ConfigError, match=r"data\.balance"):
        planner("stratified", ENTRIES, 2_026)


def test_quotas_are_the_dataset_s_shares_and_their_remainders_rotate() -> None:
    entries = wikipedia_index(9_973)
    strata = np.searchsorted((128, 256, 384, 512), lengths_of(entries))
    shares = np.bincount(strata) / 9_973
    stratified = planner("stratified", entries, 64)  # 16 a rank
    quotas = []
    for step in range(9_973 // 64):
        drawn = stratified.plan(step).drawn
        quotas += [np.bincount(strata[drawn.of(rank)], minlength=4) for rank in range(4)]
    assert np.abs(np.array(quotas) - 16 * shares).max() < 1.5
    assert np.mean(quotas, axis=0) == pytest.approx(16 * shares, abs=0.02)


def test_nodes_get_equal_shares_in_every_step() -> None:
    entries = wikipedia_index(40_009)
    local = planner("planned_local", entries, 256, nodes=4)
    for step in range(5):
        loads = local.loads(local.plan(step)).reshape(4, 2)
        assert efficiency(loads.sum(axis=1)) > 0.99
        assert efficiency(loads.ravel()) > 0.985


def test_a_node_s_share_of_the_data_holds_for_an_epoch() -> None:
    local = planner("planned_local", ENTRIES, BATCH)
    of_nodes = [np.concatenate([local.plan(step).assigned.ids_S[at : at + 14] for step in range(36)]) for at in (0, 14)]
    assert not set(of_nodes[0]) & set(of_nodes[1])


@pytest.mark.parametrize(
    ("nodes", "batch", "method", "least", "most"),
    [
        (128, 16, "none", 0.61, 0.63),
        (128, 16, "stratified_presort", 0.95, 0.965),
        (1, 16, "stratified_presort", 0.985, 0.995),
        (128, 16, "planned", 0.998, 1.0),
        (128, 8, "planned", 0.995, 1.0),
        (128, 2, "planned", 0.962, 0.97),
        (128, 16, "planned_local", 0.995, 1.0),
    ],
)
def test_methods_reach_their_promised_efficiencies(
    nodes: int, batch: int, method: Method, least: float, most: float
) -> None:
    entries = wikipedia_index(600_000)
    planned = planner(method, entries, nodes * 8 * batch, nodes, 8)
    assert least <= np.mean([efficiency(planned.loads(planned.plan(step))) for step in range(30)]) <= most
