"""Fixed quotas of strata: every rank gets them in every step, each stratum passes by itself, and steps are pure."""

import numpy as np
import pytest

from bertbench.balance.plan import Method, efficiency
from bertbench.balance.strata import StratumIndex, count_strata
from bertbench.common.errors import ConfigError
from bertbench.data.store.columns import lengths_of, pack
from tests.balance.populations import planner, wikipedia_index

EDGES = (128, 256, 384, 512)
QUOTAS = (3, 1, 1, 2)
BATCH = 28  # 2 nodes of 2 ranks, 7 samples each
ENTRIES = wikipedia_index(1_013)
STRATA = np.searchsorted(EDGES, lengths_of(ENTRIES))


@pytest.mark.parametrize("method", ["stratified", "stratified_presort"])
def test_every_rank_draws_its_quotas_in_every_step(method: Method) -> None:
    drawing = planner(method, ENTRIES, BATCH, strata_quotas=QUOTAS)
    for step in (0, 1, 35, 36, 500):
        drawn = drawing.plan(step).drawn
        for rank in range(4):
            assert np.bincount(STRATA[drawn.of(rank)], minlength=4).tolist() == list(QUOTAS)


def test_a_stratum_that_is_used_up_begins_again_in_another_order_while_the_others_continue() -> None:
    drawing = planner("stratified", ENTRIES, BATCH, strata_quotas=QUOTAS)
    sizes = np.bincount(STRATA)
    taken = 4 * np.array(QUOTAS)
    steps = int((2 * sizes // taken).max()) + 1
    drawn = np.concatenate([drawing.plan(step).drawn.ids_S for step in range(steps)])
    for stratum, size in enumerate(sizes):
        ids = drawn[STRATA[drawn] == stratum]
        assert len(ids) == steps * taken[stratum] >= 2 * size
        # a step gives each rank its samples in the stratum's own order
        first, second = ids[:size], ids[size : 2 * size]
        assert len(set(first)) == len(set(second)) == size
        assert first.tolist() != second.tolist()
    passes = steps * taken / sizes
    assert passes.max() / passes.min() > 1.1, "these quotas oversample a stratum"
    assert drawing.samples_by_stratum(steps).tolist() == (steps * taken).tolist()
    assert drawing.stratum_sizes().tolist() == sizes.tolist()


def test_a_step_of_quotas_depends_on_seed_and_step_alone() -> None:
    walked, resumed, other = (
        planner("stratified", ENTRIES, BATCH, seed=seed, strata_quotas=QUOTAS) for seed in (11, 11, 12)
    )
    for step in range(40):
        ids = walked.plan(step).drawn.ids_S.tolist()
    assert resumed.plan(39).drawn.ids_S.tolist() == ids
    assert other.plan(39).drawn.ids_S.tolist() != ids


def test_parts_of_an_accumulated_batch_have_samples_of_every_common_stratum() -> None:
    drawing = planner("stratified", ENTRIES, 4 * 14, strata_quotas=(6, 2, 2, 4))
    for part in np.array_split(STRATA[drawing.plan(3).drawn.of(1)], 2):
        assert np.bincount(part, minlength=4).tolist() == [3, 1, 1, 2]


def test_a_stratum_without_a_quota_is_never_drawn() -> None:
    drawing = planner("stratified", ENTRIES, BATCH, strata_quotas=(4, 0, 0, 3))
    assert drawing.samples_by_stratum(50).tolist() == [800, 0, 0, 600]


def test_a_step_that_takes_more_samples_than_a_stratum_has_is_refused() -> None:
    entries = wikipedia_index(40)
    with pytest.raises(ConfigError, match="28 samples of 257 to 384 tokens"):
        planner("stratified", entries, BATCH, strata_quotas=(0, 0, 7, 0))


def test_samples_by_stratum_are_counted_with_every_stratified_method() -> None:
    drawing = planner("stratified", ENTRIES, BATCH)
    ids = np.concatenate([drawing.plan(step).drawn.ids_S for step in range(50)])
    assert drawing.samples_by_stratum(50).tolist() == np.bincount(STRATA[ids]).tolist()


def test_the_index_finds_every_sample_of_every_stratum() -> None:
    lengths = np.array([1, 128, 129, 512, 256, 257] * 50)  # 300 samples: blocks of 128, the last one partial
    index = StratumIndex(pack(lengths, np.ones(300, np.int64)), EDGES)
    strata = np.searchsorted(EDGES, lengths)
    for stratum, count in enumerate(index.counts()):
        expected = np.flatnonzero(strata == stratum)
        assert index.ids(stratum, np.arange(count)).tolist() == expected.tolist()
        assert index.ids(stratum, np.array([count - 1, 0])).tolist() == [expected[-1], expected[0]]


def test_lengths_beyond_the_last_edge_belong_to_no_stratum() -> None:
    entries = pack(np.array([1, 9, 10, 20, 21, 512]), np.ones(6, np.int64))
    assert count_strata(entries, (9, 20)).tolist() == [2, 2]
    assert count_strata(entries, (9, 20, 1000)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("method", "row_order", "expected"),
    [
        ("stratified", "snake", 0.909),
        ("stratified_presort", "snake", 0.958),
        ("stratified_presort", "raster", 0.924),
    ],
)
def test_the_published_quotas_balance_1024_ranks_as_an_independent_calculation_says(
    method: Method, row_order: str, expected: float
) -> None:
    drawing = planner(
        method, wikipedia_index(600_000), 1024 * 16, nodes=128, ranks=8, strata_quotas=(6, 3, 2, 5), row_order=row_order
    )
    efficiencies = [efficiency(drawing.loads(drawing.plan(step))) for step in range(20)]
    assert np.mean(efficiencies) == pytest.approx(expected, abs=0.003)
