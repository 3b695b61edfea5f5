"""Linear layers by oneDNN's products equal torch's, and are chosen for wide layers and few sizes only."""

import pytest
import torch
from torch.nn import functional

from bertbench.model import linear as by_product
from bertbench.model.linear import Linear, by_onednn, linear
from bertbench.model.options import LEAST_WIDTH, SIZE_STEP, wants_few_sizes

pytestmark = pytest.mark.skipif(not by_product._HAS_ONEDNN, reason="no oneDNN for this processor")

WIDE = LEAST_WIDTH + 1


@pytest.mark.parametrize(("rows", "features"), [(3 * SIZE_STEP, WIDE), (37, 16 * WIDE)])
def test_it_is_torchs_linear_layer_forward_and_backward(rows: int, features: int) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias, gradient = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((rows, WIDE), (features, WIDE), (features,), (rows, features))
    )
    answers = {}
    for name, dtype in (("exact", torch.float64), ("plain", torch.float32), ("ours", torch.float32)):
        arguments = [tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias)]
        assert name == "exact" or by_onednn(*arguments[:2])
        output = (linear if name == "ours" else functional.linear)(*arguments)
        answers[name] = [output, *torch.autograd.grad(output, arguments, gradient.to(dtype))]
    for exact, plain, ours in zip(*answers.values(), strict=True):
        assert ours.shape == exact.shape
        assert (ours - exact).abs().max() <= 3 * (plain - exact).abs().max() + 1e-6


def test_narrow_layers_odd_sizes_and_half_precision_are_left_to_torch() -> None:
    rows = torch.zeros(2 * SIZE_STEP, LEAST_WIDTH)
    wide = torch.zeros(LEAST_WIDTH, LEAST_WIDTH)
    assert by_onednn(rows, wide)
    assert not by_onednn(rows[1:], wide)
    assert not by_onednn(rows, wide[1:])
    assert not by_onednn(rows.double(), wide.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not by_onednn(rows, wide)


def test_a_layer_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, hidden = Linear(WIDE, WIDE), torch.randn(SIZE_STEP, WIDE)
    expected = functional.linear(hidden, layer.weight, layer.bias)
    torch.testing.assert_close(layer(hidden), expected)
    monkeypatch.setattr(by_product, "_product", lambda *_: torch.zeros(SIZE_STEP, WIDE))
    assert not layer(hidden).any()


@pytest.mark.parametrize(
    ("device", "precision", "mode", "hidden", "expected"),
    [
        ("cpu", "fp32", "none", LEAST_WIDTH - 1, False),
        ("cpu", "fp32", "none", LEAST_WIDTH, True),
        ("cpu", "bf16", "none", 32, True),
        ("cuda", "bf16", "none", 1024, False),
        ("cuda", "bf16", "default", 1024, True),
        ("cuda", "fp8", "none", 1024, True),
    ],
)
def test_few_sizes_are_wanted_where_code_is_made_for_them(
    device: str, precision: str, mode: str, hidden: int, expected: bool
) -> None:
    assert wants_few_sizes(device, precision, mode, hidden) is expected  # type: ignore[arg-type]
