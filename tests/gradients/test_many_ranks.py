"""Why sums in 16 bits are refused over many ranks: a ring adds up one rank after another, and rounds each time."""

import pytest
import torch
from torch import Tensor


def ring(gradients_RN: Tensor) -> Tensor:
    total_N = gradients_RN[0].clone()
    for gradient_N in gradients_RN[1:]:
        total_N += gradient_N
    return total_N.double()


@pytest.mark.parametrize(("number_format", "most"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_a_sum_of_equal_gradients_stops_growing_at_the_most_ranks_that_are_allowed(
    number_format: torch.dtype, most: int
) -> None:
    # 8 and 11 significant bits: beyond 2^8 and 2^11, adding 1 is half of the last bit, and rounds to even
    for ranks, expected in ((most, most), (2 * most, most), (4 * most, most)):
        assert ring(torch.ones(ranks, 1, dtype=number_format)).item() == expected


def test_noise_as_large_as_the_mean_keeps_most_of_a_sum() -> None:
    lost = {}
    for ranks in (256, 512, 1024):
        gradients_RN = 1 + torch.randn(ranks, 4000, generator=torch.Generator().manual_seed(ranks))
        rounded_RN = gradients_RN.bfloat16()
        lost[ranks] = 1 - (ring(rounded_RN).sum() / rounded_RN.double().sum()).item()
    assert abs(lost[256]) < 0.002
    assert lost[512] == pytest.approx(0.008, abs=0.002)
    assert lost[1024] == pytest.approx(0.19, abs=0.02)
