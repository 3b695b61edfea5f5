"""What a CPU computes in its own way equals torch's: attention in place and dropout from bits."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bertbench.model import attention
from bertbench.model.attention import cpu_attention, plain_attention
from bertbench.model.dropout import apply_dropout, keep_mask, keep_share
from bertbench.model.sequences import Sequences

# 131 and 97 are products of their own, the three of 31 share one in squares of 32.
LENGTHS = [131, 131, 97, 31, 31, 31, 5, 2]
HEADS, WIDTH = 3, 8


def _inputs(tokens: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    qkv = torch.randn(tokens, 3, HEADS, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    return qkv, torch.randn(tokens, HEADS, WIDTH, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(
    "lengths",
    [LENGTHS, [64, 33, 1], [1], [7, 64, 65, 3, 100, 16, 17, 2], [48, 48, 48]],
    ids=["long ones and squares", "short", "one token", "out of order among long ones", "no filler"],
)
@pytest.mark.parametrize("scores", [2**18, 2 * 131**2])  # all heads of a long sequence at once, or two and then one
def test_attention_in_place_and_in_squares_equals_torchs_operations(
    lengths: list[int], scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_SCORES", scores)
    monkeypatch.setattr(torch, "empty_like", lambda like, **options: torch.full_like(like, torch.nan, **options))
    sequences, (qkv, gradient) = Sequences.of(np.array(lengths)), _inputs(sum(lengths))
    plain, context = plain_attention(qkv, sequences, 0.0), cpu_attention(qkv, sequences, 0.0)
    torch.testing.assert_close(context, plain, rtol=1e-12, atol=1e-12)
    (found,), (expected,) = (torch.autograd.grad(result, qkv, gradient) for result in (context, plain))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "step", "tolerance"), [(torch.float64, 1e-4, 1e-6), (torch.bfloat16, 0.05, 0.02)])
def test_attention_drops_the_same_probabilities_forward_and_backward(
    dtype: torch.dtype, step: float, tolerance: float
) -> None:
    """With one seed, a step along the gradient changes the result by the gradient at both its ends."""
    qkv, weights = (tensor.detach().to(dtype) for tensor in _inputs(sum(LENGTHS)))

    def with_gradient(leaf: Tensor) -> tuple[Tensor, Tensor]:
        torch.manual_seed(11)
        leaf = leaf.detach().requires_grad_()
        context = cpu_attention(leaf, Sequences.of(np.array(LENGTHS)), 0.3)
        context.backward(weights)
        assert leaf.grad is not None
        return (context.double() * weights.double()).sum(), leaf.grad.double()

    further = qkv + (step * with_gradient(qkv)[1].sign()).to(dtype)
    (before, from_before), (after, from_after) = with_gradient(qkv), with_gradient(further)
    expected = ((from_before + from_after) / 2 * (further.double() - qkv.double())).sum()
    assert (after - before).item() == pytest.approx(expected.item(), rel=tolerance)
    ones = torch.ones_like(qkv)
    context = cpu_attention(ones, Sequences.of(np.array(LENGTHS)), 0.3).double()
    assert context.mean().item() == pytest.approx(1, abs=0.02), "kept probabilities are enlarged"
    assert context.std() > 0.05


def test_a_nan_stays_in_its_short_sequence() -> None:
    sequences = Sequences.of(np.array([7, 5, 3]))
    qkv = torch.ones(15, 3, HEADS, WIDTH)
    qkv[0] = torch.nan
    context = cpu_attention(qkv, sequences, 0.0)
    assert context[:7].isnan().all()
    assert not context[7:].isnan().any()


def test_dropout_drops_its_rate_and_keeps_the_mean() -> None:
    torch.manual_seed(3)
    stays = keep_mask(torch.Size((1009, 997)), 0.1, torch.float32)
    dropped = (stays == 0).double().mean()
    assert abs(dropped - 0.1) < 4 * (0.1 * 0.9 / stays.numel()) ** 0.5
    assert keep_share(0.1) == pytest.approx(0.9, abs=1e-5)
    assert stays.unique().tolist() == [0, 1]
    # neighbours share a 64-bit draw, pairs of the two halves a 16-bit one: their drops must still be independent
    flat = (stays.flatten() == 0).double()
    for one, other in ((flat[0:-4:4], flat[1:-3:4]), (flat[: len(flat) // 2], flat[-(len(flat) // 2) :])):
        pair = torch.stack((one, other))
        assert abs(torch.corrcoef(pair)[0, 1]) < 4 / pair.shape[1] ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_and_its_gradient_use_one_mask(dtype: torch.dtype) -> None:
    hidden = torch.ones(61, 13, dtype=dtype, requires_grad=True)
    residual = torch.zeros(61, 13, requires_grad=True)
    for rate, result in ((0.5, apply_dropout(hidden, 0.5)), (0.25, apply_dropout(hidden, 0.25, residual))):
        (gradient,) = torch.autograd.grad(result.sum(), hidden, retain_graph=True)
        assert torch.equal(gradient, result.to(dtype))
        assert result[result > 0].unique().tolist() == pytest.approx([1 / (1 - rate)], rel=1e-2)
        assert 0 < (result == 0).double().mean() < 2 * rate
    assert torch.equal(torch.autograd.grad(result.sum(), residual)[0], torch.ones_like(residual))
    assert torch.equal(apply_dropout(hidden, 0.0), hidden)
