from dataclasses import replace

from bertbench.results.step_description import StepDescription


def test_a_run_says_in_words_how_it_computes_and_what_it_sends() -> None:
    plain = StepDescription("after", "none", (2**18, 2**19), 1, "bf16", "torch's fused Adam")
    assert plain.text().splitlines() == [
        "model: bf16",
        "optimizer: torch's fused Adam",
        "gradients: clipped after ranks add them up, 3.0 MiB in 2 buckets by collectives",
    ]
    assert replace(plain, sync="diloco", compression="int8").text().endswith("by collectives, diloco, int8")
