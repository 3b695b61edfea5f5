import numpy as np

from bertbench.balance.packing import pack_lengths
from bertbench.balance.random_samples import length_shares
from tests.balance.populations import planner, wikipedia_index


def counts_of(*lengths: int) -> np.ndarray:
    return np.bincount(lengths, minlength=17)


def test_rows_contain_the_sequences_that_fill_them_best() -> None:
    # 9 + 6 + 1 fill a row of 16; so do 10 + 6; 7 and 5 are left for a third row
    assert pack_lengths(counts_of(10, 9, 7, 6, 6, 5, 1), 16) == {(10, 5, 1): 1, (9, 7): 1, (6, 6): 1}
    assert pack_lengths(counts_of(16, 16, 3), 16) == {(16,): 2, (3,): 1}


def test_no_row_contains_more_than_three_sequences_or_more_than_fit() -> None:
    counts = np.round(np.concatenate(([0], length_shares())) * 100_000).astype(int)
    rows = pack_lengths(counts, 512)
    assert all(1 <= len(row) <= 3 and sum(row) <= 512 for row in rows)
    assert sum(np.bincount(row, minlength=513) * times for row, times in rows.items()).tolist() == counts.tolist()
    filled = (counts * np.arange(513)).sum() / (512 * rows.total())
    assert filled > 0.99


def test_ranks_get_equally_many_rows_of_a_step_and_every_sample_comes_once() -> None:
    entries = wikipedia_index(1_013)
    packed = planner("packed", entries, batch=28)
    plans = [packed.plan(step) for step in range(200)]
    times = np.bincount(np.concatenate([plan.assigned.ids_S for plan in plans]), minlength=1_013)
    assert times.max() - times.min() <= 1 + 1  # the last pass has begun, and what is left of the one before waits
    for step in (150, 3):
        assert packed.plan(step).assigned.ids_S.tolist() == plans[step].assigned.ids_S.tolist()
