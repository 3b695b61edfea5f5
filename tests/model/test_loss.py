import pytest
import torch
from torch.nn import functional

from bertbench.model.loss import IGNORED, cross_entropy_sum


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_loss_is_summed_in_at_least_float32_without_ignored_labels(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(67, 17, dtype=dtype, generator=generator).requires_grad_()
    weights = torch.randn(131, 17, dtype=dtype, generator=generator).requires_grad_()
    labels = torch.randint(131, (67,), generator=generator)
    labels[[3, 50]] = IGNORED
    wide = torch.promote_types(dtype, torch.float32)
    logits = (hidden @ weights.T).to(wide)
    expected = functional.cross_entropy(logits, labels, reduction="sum")
    found = cross_entropy_sum(hidden @ weights.T, labels)
    assert found.dtype == wide
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    gradients = torch.autograd.grad(found * 0.37, (hidden, weights))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    for gradient, its in zip(gradients, torch.autograd.grad(expected * 0.37, (hidden, weights)), strict=True):
        torch.testing.assert_close(gradient, its, rtol=tolerance, atol=tolerance)
