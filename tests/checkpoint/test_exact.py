"""Resuming from a snapshot equals never having stopped, to the last bit, on real gloo processes."""

from pathlib import Path

import pytest

from bertbench.balance.plan import METHODS
from tests.checkpoint.whole_and_resumed import DROPOUT, EVERY, TAKEN, trained, whole_and_resumed
from tests.conftest import Tiny
from tests.ranks import run_ranks

AVERAGED = "optimizer.ema_decay=0.9"
FP16 = ("communication.compression=fp16", "precision.initial_loss_scale=1e30")  # steps overflow
# 10 samples of a step are short, of 62: they begin again in step 7
QUOTAS = ("data.balance=stratified_presort", "data.strata_edges=[28,29]", "data.strata_quotas=[5,1]")
SYSTEMS: dict[str, list[tuple[str, ...]]] = {
    "adam and LAMB": [("optimizer.name=adam",), ("optimizer.name=lamb",)],
    "adam and every balance method": [("optimizer.name=adam", f"data.balance={method}") for method in METHODS],
    "every balance method": [("optimizer.name=lamb", f"data.balance={method}") for method in METHODS],
    "an order by ranks and an exchange": [("data.balance=packed",), ("data.balance=stratified_presort",)],
    "quotas of strata, of which one is used up": [QUOTAS],
    "sharded state, loss scaling and accumulation": [
        ("optimizer.name=lamb", "optimizer.sharded=true"),
        ("data.gradient_accumulation_steps=2", "clip.mode=bucket", "clip.parts=each", "clip.max_norm=0.1", *FP16),
        ("data.gradient_accumulation_steps=2", "clip.mode=before", "clip.parts=each", "optimizer.sharded=true"),
    ],
    "an average and Muon": [
        (AVERAGED, "optimizer.name=muon", "clip.mode=bucket", *FP16),
        (AVERAGED, "optimizer.name=muon"),
    ],
    "ranks that share tokens": [
        ("model.feed_forward_size=22", "parallel.tensor=2", "parallel.sequence=true", "model.attention_dropout=0.1",
         "data.gradient_accumulation_steps=2"),
    ],
}  # fmt: skip


NAMES = list(SYSTEMS)
SLOW = (1, NAMES[2]), (2, NAMES[1]), *((2, name) for name in NAMES[7:])


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        (1, NAMES[0]),
        *((2, name) for name in NAMES[3:7]),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
def test_resuming_is_exact(tiny: Tiny, tmp_path: Path, ranks: int, name: str) -> None:
    common = (DROPOUT, EVERY, f"launch.ranks_per_node={ranks}")
    for pairs in run_ranks(
        ranks, whole_and_resumed, [tiny(*common, *overrides) for overrides in SYSTEMS[name]], tmp_path
    ):
        for (losses, weights), (losses_on, weights_on) in pairs:
            assert losses_on == losses[TAKEN:]
            assert weights_on == weights


def test_another_number_of_ranks_resumes_from_sharded_state(tiny: Tiny, tmp_path: Path) -> None:
    on_two, on_one = (tiny(EVERY, "optimizer.sharded=true", f"launch.ranks_per_node={ranks}") for ranks in (2, 1))
    ((losses, _), _), *_ = run_ranks(2, whole_and_resumed, [on_two], tmp_path)[0]
    ((losses_on, _),) = run_ranks(1, trained, on_one, tmp_path / "result_0.txt", True)
    # fp32 sums in another order
    assert losses_on == pytest.approx(losses[TAKEN:], abs=2e-5)
