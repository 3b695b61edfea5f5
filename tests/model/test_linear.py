"""Linear layers by oneDNN's products equal torch's, and each layer gets the library that was faster at its shape."""

import pytest
import torch

from bertbench.model import products as measured
from bertbench.model.bert import Bert
from bertbench.model.linear import BY_TORCH, Products, linear, onednn_multiplies, onednn_takes
from bertbench.model.options import LEAST_WIDTH, SIZE_STEP
from bertbench.model.shape import BertShape
from tests.rounding import assert_product

pytestmark = pytest.mark.skipif(not onednn_multiplies(torch.float32), reason="no oneDNN for this processor")

WIDE = LEAST_WIDTH + 1
ALL_ONEDNN = Products("onednn", "onednn", "onednn")


@pytest.mark.parametrize(
    "products",
    [ALL_ONEDNN, BY_TORCH._replace(to_weight="copied")],
    ids=str,
)
@pytest.mark.parametrize(("rows", "features"), [(3 * SIZE_STEP, WIDE), (3 * SIZE_STEP, 7), (37, 16 * WIDE)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_equals_torchs_linear_layer_forward_and_backward(
    rows: int, features: int, products: Products, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias, gradient = (
        torch.randn(shape, generator=generator).to(dtype).float()
        for shape in ((rows, WIDE), (features, WIDE), (features,), (rows, features))
    )
    arguments = [tensor.clone().requires_grad_() for tensor in (hidden, weight, bias)]
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        output = linear(*arguments, products)
    assert output.dtype == dtype
    to_hidden, to_weight, to_bias = torch.autograd.grad(output, arguments, gradient.to(dtype))
    nothing = torch.zeros(())
    assert_product(output, hidden, weight.T, bias, dtype)
    assert_product(to_hidden, gradient, weight, nothing, dtype)
    assert_product(to_weight, gradient.T, hidden, nothing, dtype)
    assert_product(to_bias[None], torch.ones(1, rows), gradient, nothing, dtype)


def test_odd_sizes_and_double_precision_are_left_to_torch() -> None:
    rows, weight = torch.zeros(2 * SIZE_STEP, 7), torch.zeros(11, 7)
    assert onednn_takes(rows, weight)
    assert not onednn_takes(rows[1:], weight)
    assert onednn_takes(rows[1:], torch.zeros(16 * 7, 7))  # so wide that code for one size pays
    assert not onednn_takes(rows.double(), weight.double())
    assert not onednn_takes(rows.half(), weight.half())


def test_a_library_is_chosen_for_the_layers_of_a_shape() -> None:
    model = Bert(BertShape(WIDE, 12, 1, 1, 7))
    measured.set_products(model, {(12, 12): ALL_ONEDNN})
    layer = model.layers[0]
    assert (layer.attention_output.products, layer.qkv.products) == (ALL_ONEDNN, BY_TORCH)
    assert model.masked_lm.products == BY_TORCH
    measured.set_products(model, {(WIDE, 12): ALL_ONEDNN})
    assert (layer.attention_output.products, model.masked_lm.products) == (BY_TORCH, ALL_ONEDNN)


def test_every_product_of_every_shape_is_measured_and_the_clearly_faster_library_taken() -> None:
    shapes = measured.layer_shapes(BertShape(30522, 256, 4, 4, 1024), torch.float32)
    assert shapes == [(256, 256), (256, 1024), (768, 256), (1024, 256), (30522, 256)]
    assert measured.layer_shapes(BertShape(512, 128, 2, 8, 256), torch.float32) == []
    seconds = measured.measure({(7, 5): 7, (11, 3): 11}, torch.float32)
    assert seconds.shape == (2, 3, 3)
    assert ((seconds > 0) & (seconds < 10)).flatten(1).sum(1).tolist() == [7, 7]
    assert seconds[:, :2, 2].isinf().all()  # only weights' gradients can be copied
    seconds = torch.tensor([[[1.0, 0.9, torch.inf], [1.0, 0.98, torch.inf], [1.0, 1.1, 0.9]]])
    assert measured.fastest(seconds) == [Products("onednn", "torch", "copied")]
