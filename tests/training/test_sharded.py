"""Training with sharded optimizer state equals training with whole state, except for rounding."""

import pytest

from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.training.steps import trained

STEPS = 3
# fp32 sums of a tensor's norm in another order, and over 3 steps what follows from that
TOLERANCE = 2e-5
SEVERAL_BUCKETS = "communication.bucket_mb=0.003"
CLIPPED = ("clip.max_norm=0.3", SEVERAL_BUCKETS)

MUON = "optimizer.name=muon"
FOUR = "launch.ranks_per_node=4"


@pytest.mark.parametrize(("ranks", "ways"), [
    (2, {
        "adam": ("optimizer.name=adam",),
        "after": ("clip.mode=after", *CLIPPED),
        "before": ("clip.mode=before", *CLIPPED),
        "bucket": ("clip.mode=bucket", *CLIPPED, "data.gradient_accumulation_steps=3"),
    }),
    (2, {"muon": (MUON, "clip.mode=bucket", *CLIPPED)}),
    pytest.param(4, {
        "accumulated": (FOUR, "clip.mode=before", "data.gradient_accumulation_steps=3", *CLIPPED),
        "muon": (FOUR, MUON, *CLIPPED),
    }, marks=pytest.mark.slow),
])  # fmt: skip
def test_ranks_train_equally_in_every_clip_mode_and_with_accumulation(
    tiny: Tiny, ranks: int, ways: dict[str, tuple[str, ...]]
) -> None:
    systems = [
        tiny("optimizer.name=lamb", *overrides, f"optimizer.sharded={flag}")
        for overrides in ways.values()
        for flag in ("false", "true")
    ]
    for answers in run_ranks(ranks, trained, STEPS, *systems):
        for name, whole, sliced in zip(ways, answers[::2], answers[1::2], strict=True):
            assert sliced.buckets == whole.buckets, "the same buckets, which clipping bucket by bucket depends on"
            assert sliced.losses == pytest.approx(whole.losses, abs=TOLERANCE, rel=TOLERANCE), name
            for numbers, expected in zip(sliced.clipping, whole.clipping, strict=True):
                assert numbers == pytest.approx(expected, abs=TOLERANCE, rel=TOLERANCE), name
            assert sliced.weights == pytest.approx(whole.weights, abs=1e-4), name
            if "clip.max_norm=0.3" in ways[name]:
                assert any(clipped > 0 for _, clipped in sliced.clipping), name
    weights = [answers[-1].weights for answers in run_ranks(ranks, trained, STEPS, systems[-1])]
    assert all(own == weights[0] for own in weights), "all ranks end with the same weights, to the last bit"


def test_sums_in_bf16_stay_near_sums_in_fp32(tiny: Tiny) -> None:
    sharded = ("optimizer.name=lamb", "optimizer.sharded=true", "schedule.warmup_steps=3")
    systems = [tiny(*sharded, f"communication.compression={kind}") for kind in ("none", "bf16", "fp16")]
    full, bf16, fp16 = run_ranks(2, trained, STEPS, *systems)[0]
    assert bf16.weights != full.weights != fp16.weights
    for halved, tolerance in ((bf16, 0.02), (fp16, 0.003)):  # 8 and 11 bits
        assert halved.losses == pytest.approx(full.losses, rel=tolerance)


@pytest.mark.slow  # torch.compile takes half a minute
def test_compiled_pieces_read_their_weights_from_the_buckets(tiny: Tiny) -> None:
    compiled = ("optimizer.name=lamb", "optimizer.sharded=true", "compute.compile=default", *CLIPPED)
    plain, ours = run_ranks(2, trained, STEPS, tiny("optimizer.name=lamb", *CLIPPED), tiny(*compiled))[0]
    assert ours.losses == pytest.approx(plain.losses, rel=TOLERANCE)
    norms, expected = ([norm for norm, _ in one.clipping] for one in (ours, plain))
    assert norms == pytest.approx(expected, rel=TOLERANCE)
