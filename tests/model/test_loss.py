import pytest
import torch

from bertbench.model.loss import IGNORED, cross_entropy_sum


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_loss_is_summed_in_at_least_float32_without_ignored_labels(dtype: torch.dtype) -> None:
    logits = torch.randn(67, 131, dtype=dtype, generator=torch.Generator().manual_seed(5))
    labels = torch.arange(67)
    expected = -logits.double().log_softmax(-1).diagonal()
    found = cross_entropy_sum(logits, labels.where((labels != 3) & (labels != 50), IGNORED))
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    assert found.item() == pytest.approx((expected.sum() - expected[3] - expected[50]).item(), rel=1e-6)
