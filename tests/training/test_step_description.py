from dataclasses import replace

from bertbench.training.step_description import StepDescription


def test_a_run_says_in_words_how_it_computes_and_what_it_sends() -> None:
    plain = StepDescription("after", "none", (2**18, 2**19), 1, "bf16", "torch's fused Adam")
    assert plain.text().splitlines() == [
        "model: bf16",
        "optimizer: torch's fused Adam",
        "gradients: clipped after the all-reduce, 3.0 MiB in 2 buckets through collectives",
    ]
    assert replace(plain, technique="diloco", compression="bf16").text().endswith("through collectives, diloco, bf16")


def test_a_run_says_where_clipping_before_the_sum_is_clipping_after_it() -> None:
    before = StepDescription("before", "none", (5, 6), 1, "bf16", "Adam")
    assert "gradients: clipped before the all-reduce, 0.0 MiB" in before.text()
    alone = replace(before, clips_the_sum=True)
    assert "clipped before the all-reduce, which is after it for a single rank's gradient, 0.0 MiB" in alone.text()


def test_a_run_states_the_norm_to_which_it_clips_a_bucket_or_a_part() -> None:
    bucketwise = StepDescription("bucket", "none", (5, 6), 1, "bf16", "Adam", clip_limit=0.70711, clip_divisor=2)
    assert "clipped bucket by bucket before the all-reduce, each bucket to a norm of 0.707, " in bucketwise.text()
    by_part = replace(bucketwise, clipped_parts=3)
    assert "each bucket to a norm of 0.707, each of 3 parts separately, " in by_part.text()
    assert by_part.logged_clipping() == {"mode": "bucket", "buckets": 2, "divisor": 2, "limit": 0.70711, "parts": 3}
