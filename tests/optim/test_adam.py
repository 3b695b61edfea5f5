import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from bertbench.common.scalars import scalar_tensor
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.interface import Optimizer
from tests.optim.drawn import adam, draw_gradients, lamb, matrices
from tests.optim.test_muon import optimizer_of as muon_of


def test_adam_equals_torchs_adamw() -> None:
    ours = matrices((7, 3), (5, 2))
    theirs = copy.deepcopy(ours)
    optimizer = MultiTensorAdam(ours, adam(beta1=0.8, beta2=0.95, weight_decay=0.1))
    reference = torch.optim.AdamW(theirs, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    for step in range(5):
        for parameters in (ours, theirs):
            draw_gradients(parameters, step)
        optimizer.step(0.01)
        reference.step()
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_lambs_first_step_as_worked_out_by_hand() -> None:
    # first step: m = g, v = g * g after bias correction, so m / (sqrt(v) + eps) is the sign of g (eps is tiny)
    weight = nn.Parameter(torch.tensor([[3.0, -4.0]]))  # norm 5
    weight.grad = torch.tensor([[0.2, 0.7]])
    MultiTensorAdam([weight], lamb(epsilon=1e-12, weight_decay=0.5)).step(0.1)
    update = [1 + 0.5 * 3, 1 - 0.5 * 4]  # 2.5, -1
    ratio = 5 / math.hypot(*update)
    expected = [[3 - 0.1 * ratio * update[0], -4 - 0.1 * ratio * update[1]]]
    torch.testing.assert_close(weight.detach(), torch.tensor(expected))


def test_biases_and_norms_are_excluded_from_decay_and_trust_ratio() -> None:
    bias = nn.Parameter(torch.tensor([3.0, -4.0]))
    bias.grad = torch.tensor([0.2, 0.7])
    MultiTensorAdam([bias], lamb(epsilon=1e-12, weight_decay=0.5)).step(0.1)
    torch.testing.assert_close(bias.detach(), torch.tensor([2.9, -4.1]))


@pytest.mark.parametrize("zero", ["weight", "gradient"])
def test_the_trust_ratio_is_one_where_a_norm_is_zero(zero: str) -> None:
    weight = nn.Parameter(torch.zeros(1, 2) if zero == "weight" else torch.ones(1, 2))
    weight.grad = torch.zeros(1, 2) if zero == "gradient" else torch.tensor([[0.3, -0.3]])
    MultiTensorAdam([weight], lamb(epsilon=1e-12, weight_decay=0.0)).step(0.1)
    expected = [[-0.1, 0.1]] if zero == "weight" else [[1.0, 1.0]]
    torch.testing.assert_close(weight.detach(), torch.tensor(expected))


@pytest.mark.parametrize("optimizer_of", [lambda *given: MultiTensorAdam(given[0], lamb(), *given[1:]), muon_of])
def test_a_fused_query_key_value_matrix_counts_as_three_tensors(optimizer_of: Callable[..., Optimizer]) -> None:
    (fused,) = matrices((12, 5))
    draw_gradients([fused], 2)
    parts = [nn.Parameter(part.clone()) for part in fused.detach().chunk(3)]
    for part, gradient in zip(parts, fused.grad.chunk(3), strict=True):
        part.grad = gradient.clone()
    optimizer_of([fused], {fused: 3}).step(0.1)
    optimizer_of(parts).step(0.1)
    assert torch.equal(fused, torch.cat(list(parts)))


def test_a_count_of_steps_is_a_float_as_cudas_kernel_reads_it() -> None:
    # of an integer CUDA's fused Adam reads the bits: 1 becomes 1e-45, its bias correction 0, and all weights NaN
    assert scalar_tensor(3, torch.device("cpu")).dtype == torch.float32
