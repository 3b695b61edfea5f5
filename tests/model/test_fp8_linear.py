"""Products in fp8 against float64, within what the formats' rounding allows, and the layers that are converted."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bertbench.common.errors import ConfigError
from bertbench.loading.batch import synthetic
from bertbench.model import compiled_layer, fp8_linear
from bertbench.model.bert import Bert
from bertbench.model.compiled import compile_pieces
from bertbench.model.fp8_feed_forward import feed_forward
from bertbench.model.fp8_linear import CONVERTED, Fp8Linear, check_device, multiply_in_fp8
from bertbench.model.fp8_scaling import E4M3, E5M2, DelayedScaling
from bertbench.model.linear import Linear
from bertbench.model.shape import BertShape
from tests.compiling import compiled_by
from tests.model.test_fp8_scaling import CPU, LEAST_NORMAL, ROUND_OFF, alone
from tests.rounding import unit

SHAPE = BertShape(
    vocab_size=29, hidden_size=32, layers=3, attention_heads=2, feed_forward_size=48, max_positions=16,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
ROWS, INPUTS, OUTPUTS = 13, 32, 48


class Case:
    """A converted layer whose scales fit its operands, and the operands, which bf16 holds exactly."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.input = (3 * torch.randn(ROWS, INPUTS, generator=generator)).bfloat16()
        self.gradient = (1e-4 * torch.randn(ROWS, OUTPUTS, generator=generator)).bfloat16()
        linear = Linear(INPUTS, OUTPUTS)
        for parameter in linear.parameters():
            nn.init.normal_(parameter, std=0.02, generator=generator)
        self.scaling = DelayedScaling(1, CPU)
        self.layer = Fp8Linear(linear, self.scaling.layers[0])
        self.run()  # with scales of 1
        self.scaling.advance(alone)

    def run(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The output, and the gradients of input, weight and bias."""
        given = self.input.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            output = self.layer(given)
        return output, *torch.autograd.grad(output, (given, self.layer.weight, self.layer.bias), self.gradient)


def allowed_error(
    left: Tensor, left_scale: Tensor, right: Tensor, right_scale: Tensor, left_type: torch.dtype
) -> Tensor:
    """How far fp8's product may be off: each operand rounds by a unit of its size, or of the least normal's."""
    off = []
    for values, scale, dtype in ((left, left_scale, left_type), (right, right_scale, E4M3)):
        off.append(ROUND_OFF[dtype] * values.abs().clamp(min=LEAST_NORMAL[dtype] / scale.item()))
    left_off, right_off = off
    rounded = left_off @ right.abs() + left.abs() @ right_off + left_off @ right_off
    summed = left.shape[1] * 2**-24 * (left.abs() + left_off) @ (right.abs() + right_off)
    return rounded + summed


def assert_fp8_product(found: Tensor, exact: Tensor, allowed: Tensor) -> None:
    allowed = allowed + unit(torch.bfloat16) * (exact.abs() + allowed)
    error = (found.double() - exact).abs()
    assert bool((error <= allowed).all())
    assert error.norm() > 0.005 * exact.norm(), "bf16's error would be smaller: nothing was rounded to fp8"


def test_an_output_is_off_by_what_rounding_both_operands_to_e4m3_allows() -> None:
    case = Case()
    output, *_ = case.run()
    left, right = case.input.double(), case.layer.weight.detach().double().T
    scaling = case.layer.scaling
    allowed = allowed_error(left, scaling.input.scale, right, scaling.weight.scale, E4M3)
    bias = case.layer.bias.detach().bfloat16().double()
    assert output.dtype == torch.bfloat16
    assert_fp8_product(output, left @ right + bias, allowed)


def test_an_input_s_gradient_is_off_by_what_rounding_the_output_s_to_e5m2_allows() -> None:
    case = Case()
    _, to_input, *_ = case.run()
    left, right = case.gradient.double(), case.layer.weight.detach().double()
    scaling = case.layer.scaling
    allowed = allowed_error(left, scaling.gradient.scale, right, scaling.weight.scale, E5M2)
    assert_fp8_product(to_input, left @ right, allowed)


def test_a_weight_s_gradient_is_off_by_what_rounding_both_operands_allows() -> None:
    case = Case()
    _, _, to_weight, _ = case.run()
    left, right = case.gradient.double().T, case.input.double()  # 13 tokens: products in fp8 sum over 16
    scaling = case.layer.scaling
    allowed = allowed_error(left, scaling.gradient.scale, right, scaling.input.scale, E5M2)
    assert to_weight.dtype == torch.float32
    assert_fp8_product(to_weight, left @ right, allowed)


def test_a_bias_s_gradient_is_the_sum_before_rounding() -> None:
    case = Case()
    *_, to_bias = case.run()
    torch.testing.assert_close(to_bias, case.gradient.sum(0, dtype=torch.float32), rtol=1e-6, atol=1e-10)


class TwoLayers:
    """A feed-forward layer whose scales fit its operands."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.hidden = (3 * torch.randn(ROWS, INPUTS, generator=generator)).bfloat16()
        self.gradient = (1e-4 * torch.randn(ROWS, INPUTS, generator=generator)).bfloat16()
        first, second = Linear(INPUTS, OUTPUTS), Linear(OUTPUTS, INPUTS)
        for parameter in (*first.parameters(), *second.parameters()):
            nn.init.normal_(parameter, std=0.1, generator=generator)
        self.scaling = DelayedScaling(2, CPU)
        of_first, of_second = self.scaling.layers
        self.first, self.second = Fp8Linear(first, of_first), Fp8Linear(second, of_second)
        self.run(apart)  # with scales of 1
        self.scaling.advance(alone)

    def run(self, function: Any) -> tuple[Tensor, ...]:
        """The product, and the gradients of hidden states, weights and the first bias."""
        given = self.hidden.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            output = function(self.first, self.second, given)
        weights = self.first.weight, self.first.bias, self.second.weight
        return output, *torch.autograd.grad(output, (given, *weights), self.gradient)


def apart(first: Fp8Linear, second: Fp8Linear, given: Tensor) -> Tensor:
    return second.product(functional.gelu(first(given), approximate="tanh"))


def test_both_feed_forward_products_in_one_function_are_those_of_two_layers() -> None:
    two, one = TwoLayers(), TwoLayers()
    for expected, found in zip(two.run(apart), one.run(feed_forward), strict=True):
        # bf16's rounding between two layers moves a number to its neighbour in fp8 here and there
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert expected.norm() > 0
        assert (found - expected).norm() < 0.03 * expected.norm()
    for plain, ours in zip(two.scaling.layers, one.scaling.layers, strict=True):
        for of_plain, of_ours in zip(plain, ours, strict=True):
            assert of_ours.amax.item() == pytest.approx(of_plain.amax.item(), rel=2**-6)
            assert of_ours.amax > 0


def test_magnitudes_are_observed_in_training_alone() -> None:
    case = Case()
    case.run()
    seen = [operand.amax.item() for operand in case.layer.scaling]
    assert seen == [
        values.detach().abs().max().item() for values in (case.input, case.layer.weight, case.gradient.float())
    ]
    case.scaling.advance(alone)
    case.layer.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        case.layer(case.input)
    assert [operand.amax.item() for operand in case.layer.scaling] == [0.0] * 3


def test_nan_is_seen_in_output_and_gradients_and_leaves_the_scales() -> None:
    case = Case()
    before = [operand.scale.item() for operand in case.layer.scaling]
    case.input[2, 3] = torch.nan
    case.gradient[4, 5] = torch.inf
    output, _, to_weight, _ = case.run()
    assert output[2].isnan().all() and not output[3].isnan().any()
    assert to_weight[5].isnan().any()
    case.scaling.advance(alone)
    assert [operand.scale.item() for operand in case.layer.scaling] == before


def model_in_fp8() -> Bert:
    torch.manual_seed(1)
    model = Bert(SHAPE)
    for weight in model.parameters():  # biases of 0 and norms of 1 would hide what is missing
        nn.init.normal_(weight, std=0.2)
    multiply_in_fp8(model, lambda: loss(model).backward()).start(alone)
    return model


def loss(model: Bert) -> Tensor:
    batch = synthetic(3, 12, SHAPE.vocab_size, torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        return model.loss_sums(*batch.inputs, batch.labels).weighted(0.5, 0.25)


def gradients(model: Bert) -> dict[str, Tensor]:
    model.zero_grad()
    loss(model).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def test_the_layers_four_products_are_converted_and_nothing_else() -> None:
    model = model_in_fp8()
    converted = {name for name, module in model.named_modules() if isinstance(module, Fp8Linear)}
    assert converted == {f"layers.{number}.{name}" for number in range(SHAPE.layers) for name in CONVERTED}
    plain = Bert(SHAPE)
    assert [(name, weight.shape) for name, weight in model.named_parameters()] == [
        (name, weight.shape) for name, weight in plain.named_parameters()
    ]
    assert all(weight.grad is None for weight in model.parameters())


def test_the_first_step_s_scales_follow_from_the_pass_before_it() -> None:
    model = model_in_fp8()
    for module in model.modules():
        if isinstance(module, Fp8Linear):
            assert all(operand.scale != 1 or operand.amax == 0 for operand in module.scaling)
            # of weights the largest number is known: 448 / amax, less than a power of two below
            at_most = 448 / module.weight.abs().max()
            assert at_most / 2 < module.scaling.weight.scale <= at_most


def test_a_model_s_gradients_are_near_those_of_bf16() -> None:
    model = model_in_fp8()
    plain = Bert(SHAPE)
    plain.load_state_dict(model.state_dict())
    expected, found = gradients(plain), gradients(model)
    largest = max(gradient.norm() for gradient in expected.values())
    # 12 products forward and 12 backward, each off by 2^-4 to 2^-3 of its size, independently (self_check.py)
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() < 0.5 * (gradient.norm() + 1e-3 * largest), name
    name = "layers.1.feed_forward_in.weight"
    assert (found[name] - expected[name]).norm() > 0.01 * expected[name].norm(), "rounded as in bf16"


@pytest.mark.parametrize("backend", [None, pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_pieces_multiply_and_observe_as_plain_layers(backend: str | None) -> None:
    model = model_in_fp8()
    ours = copy.deepcopy(model)
    with compiled_by(backend):
        if backend:
            compile_pieces(ours)
        else:
            for layer in ours.encoder_layers():
                setattr(layer, "before_attention", partial(compiled_layer.before_attention, layer))  # noqa: B010
                setattr(layer, "after_attention", partial(compiled_layer.after_attention, layer))  # noqa: B010
            ours.join_layers(compiled_layer.between_attentions)
        expected, found = gradients(model), gradients(ours)
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        # bf16 rounds otherwise here and there, and fp8 then takes a neighbour, 2^-3 off: after some layers both round
        # independently, so the bound is that of fp8 beside bf16
        assert (found[name] - gradient).norm() < 0.5 * (gradient.norm() + 1e-3 * largest), name
    for mine, its in zip(ours.modules(), model.modules(), strict=True):
        if isinstance(mine, Fp8Linear) and isinstance(its, Fp8Linear):
            for operand, plain in zip(mine.scaling, its.scaling, strict=True):
                assert 0.5 * plain.amax < operand.amax < 2 * plain.amax


def test_a_gpu_without_fp8_or_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device(CPU)
    monkeypatch.setattr(fp8_linear, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A10")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    check_device(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    with pytest.raises(
        ConfigError, match=r"^precision.compute is fp8, but NVIDIA A10 \(compute capability 8\.6\) has no"
    ):
        check_device(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(fp8_linear, "find_spec", lambda _: None)
    with pytest.raises(
        ConfigError, match=r"Triton isn't installed, .* install bertbench\[kernels\], or add --set prec"
    ):
        check_device(torch.device("cuda"))
