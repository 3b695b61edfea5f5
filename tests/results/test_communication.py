import pytest

from bertbench.config.optimizer import ClipMode, Compression
from bertbench.results.communication import Communication


@pytest.mark.parametrize(
    ("clip", "compression", "sync", "said"),
    [
        ("after", "none", "every_step", "clipped after ranks add them up, 3.0 MiB in 2 buckets by shared memory"),
        ("bucket", "int8", "diloco", "bucket by bucket before ranks add them up, 3.0 MiB in 2 buckets by shared "
         "memory, diloco, int8"),
    ],
)  # fmt: skip
def test_a_run_says_in_words_how_it_computes_and_what_it_sends(
    clip: ClipMode, compression: Compression, sync: str, said: str
) -> None:
    run = Communication(clip, compression, (2**18, 2**19), 1, "bf16", "torch's fused Adam", sync, "shared memory")
    model, optimizer, gradients = run.text().splitlines()
    assert (model, optimizer) == ("model: bf16", "optimizer: torch's fused Adam")
    assert gradients.startswith("gradients: clipped ") and gradients.endswith(said)
