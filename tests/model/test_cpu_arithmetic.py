"""Our own arithmetic on a CPU equals torch's: attention, and the loops between matrix products."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bertbench.model import attention, loops
from bertbench.model.attention import cpu_attention, plain_attention
from bertbench.model.loops import AddNorm, apply_dropout, draw_mask, gelu
from bertbench.model.loss import cross_entropy_sum
from bertbench.model.sequences import Sequences

# 131 and 97 take several blocks of 64 rows.
LENGTHS = [131, 131, 97, 31, 31, 31, 5, 2]
HEADS, WIDTH = 3, 8


def _inputs(tokens: int, width: int = WIDTH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    qkv = torch.randn(tokens, 3, HEADS, width, generator=generator).requires_grad_()
    return qkv, torch.randn(tokens, HEADS, width, generator=generator)


@pytest.mark.parametrize("width", [WIDTH, 37, 64])  # of a head: less than a tile, more than one, two
@pytest.mark.parametrize(
    "lengths",
    [LENGTHS, [1], [7, 64, 65, 3, 100, 16, 17, 2]],
    ids=["several blocks", "one token", "out of order"],
)
@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(torch.float32, 1e-5, 1e-6), (torch.bfloat16, 0.02, 0.02)])
def test_attention_equals_torchs_operations(
    lengths: list[int], width: int, dtype: torch.dtype, rtol: float, atol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequences, given = Sequences.of(np.array(lengths)), _inputs(sum(lengths), width)
    qkv, gradient = (tensor.detach().to(dtype).requires_grad_() for tensor in given)
    exact = plain_attention(qkv.double(), sequences, 0.0)
    (expected,) = torch.autograd.grad(exact, qkv, gradient.double())
    # new memory is often zeros by chance, which would hide an element that the loops don't fill: here it is NaN
    monkeypatch.setattr(torch, "empty_like", lambda like, **options: torch.full_like(like, torch.nan, **options))
    context = cpu_attention(qkv, sequences, 0.0)
    (found,) = torch.autograd.grad(context, qkv, gradient)
    for ours, other in ((context, exact), (found, expected)):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), other.double(), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("dtype", "step", "tolerance"), [(torch.float32, 1e-3, 1e-3), (torch.bfloat16, 0.05, 0.02)])
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


def test_dropout_drops_its_rate_independently() -> None:
    torch.manual_seed(3)
    dropped = (apply_dropout(torch.ones(1009, 997), 0.1) == 0).double().flatten()
    assert abs(dropped.mean() - 0.1) < 4 * (0.1 * 0.9 / len(dropped)) ** 0.5
    assert draw_mask(0.1).enlarged == pytest.approx(1 / 0.9, rel=1e-5)
    # elements 16 apart share a hash, neighbours have neighbouring numbers, and the next mask has other keys
    again = (apply_dropout(torch.ones(1009, 997), 0.1) == 0).double().flatten()
    for one, other in ((dropped[:-1], dropped[1:]), (dropped[:-16], dropped[16:]), (dropped, again)):
        assert abs(torch.corrcoef(torch.stack((one, other)))[0, 1]) < 4 / len(one) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_and_its_gradient_use_one_mask(dtype: torch.dtype) -> None:
    hidden = torch.ones(61, 13, dtype=dtype, requires_grad=True)
    for rate in (0.5, 0.25):
        result = apply_dropout(hidden, rate)
        (gradient,) = torch.autograd.grad(result.sum(), hidden)
        assert torch.equal(gradient, result)
        assert result[result > 0].unique().tolist() == pytest.approx([1 / (1 - rate)], rel=1e-2)
        assert 0 < (result == 0).double().mean() < 2 * rate
    assert torch.equal(apply_dropout(hidden, 0.0), hidden)


@pytest.mark.parametrize("features", [5, 37])  # less than a vector, and more than two
@pytest.mark.parametrize(
    ("kinds", "tolerance"),
    [((torch.float32,) * 2, 1e-5), ((torch.bfloat16, torch.float32), 1e-2), ((torch.bfloat16,) * 2, 4e-2)],
)
def test_norm_of_a_sum_equals_torchs_operations_in_float64(
    kinds: tuple[torch.dtype, torch.dtype], tolerance: float, features: int
) -> None:
    """Use more rows than one block adds up; with dropout, the mask follows from the elements that it kept."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(3, 131, features, generator=generator)
    norm = AddNorm(features, eps=1e-3)
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    hidden, residual = (value.to(kind).requires_grad_() for value, kind in zip(values, kinds, strict=False))
    gradient = values[2].to(kinds[1])
    for rate in (0.0, 0.25):
        result = norm(hidden, residual, rate)
        found = torch.autograd.grad(result, (hidden, residual, *norm.parameters()), gradient)
        kept = (found[0] != 0).double() / (1 - rate) if rate else torch.ones_like(hidden).double()
        assert (kept == 0).double().mean().item() == pytest.approx(rate, abs=0.05 + 0.1 * (features < 16))
        exact = [tensor.detach().double().requires_grad_() for tensor in (hidden, residual, *norm.parameters())]
        expected = torch.nn.functional.layer_norm(exact[0] * kept + exact[1], (features,), *exact[2:], eps=1e-3)
        torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
        slopes = torch.autograd.grad(expected, exact, gradient.double())
        for one, other in zip(found, slopes, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=4 * tolerance, atol=4 * tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2**-8)])
def test_loops_equal_torchs_operations_in_float64(dtype: torch.dtype, tolerance: float) -> None:
    """Also at values where a power of e is 0 or as large as the format holds, and beside a vector's end."""
    generator = torch.Generator().manual_seed(5)
    values = torch.cat((torch.randn(13, 71, generator=generator) * 3, torch.linspace(-200, 200, 71)[None]))
    labels = torch.tensor([*range(3, 68, 5), 70])
    labels[4] = -100
    exact, found = (values.to(dtype).to(kind).requires_grad_() for kind in (torch.float64, dtype))
    for function in (gelu, lambda given: cross_entropy_sum(given, labels)):
        expected, result = function(exact), function(found)
        torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
        weights = torch.randn(expected.shape, generator=generator)
        (slope,) = torch.autograd.grad(expected, exact, weights.double())
        (by_loop,) = torch.autograd.grad(result, found, weights.to(result.dtype))
        torch.testing.assert_close(by_loop.double(), slope, rtol=2 * tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("options", [None, "-ffast-math"])
def test_without_a_compiler_or_with_one_that_computes_wrong_torch_computes(
    options: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    if options:
        compiler.write_text(f'#!/bin/sh\nexec c++ "$@" -O1 {options}\n')
        compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loops.library.cache_clear()
    try:
        assert isinstance(loops.library(), str)
        assert attention.kernel_for(torch.device("cpu"), torch.float32, 64) is plain_attention
        given = torch.linspace(-3, 3, 7)
        assert torch.equal(gelu(given), torch.nn.functional.gelu(given, approximate="tanh"))
    finally:
        loops.library.cache_clear()
