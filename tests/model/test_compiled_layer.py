"""The layer that torch's compiler receives computes like the plain one, and its dropout is random as it should be."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.model import compiled_layer
from bertbench.model.bert import Bert
from bertbench.model.compiled import compile_pieces
from bertbench.model.compiled_layer import hashed_dropout, hashed_numbers
from bertbench.model.gelu import gelu, gelu_gradient
from bertbench.model.linear import BLOCK_ROWS
from bertbench.model.options import ResidualName
from bertbench.model.rounded_weights import RoundedWeights, rounded_layers
from bertbench.model.shape import BertShape
from tests.compiling import compiled_by

SHAPE = BertShape(
    vocab_size=29, hidden_size=24, layers=4, attention_heads=2, feed_forward_size=40, max_positions=16,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def batch_of(samples: int, length: int) -> Batch:
    return synthetic(samples, length, SHAPE.vocab_size, torch.Generator().manual_seed(1))


def joined(model: Bert) -> Bert:
    """The model with the pieces that `compile_pieces` compiles, not compiled."""
    model = copy.deepcopy(model)
    for layer in model.encoder_layers():
        setattr(layer, "before_attention", partial(compiled_layer.before_attention, layer))  # noqa: B010 - a method
        setattr(layer, "after_attention", partial(compiled_layer.after_attention, layer))  # noqa: B010
    model.join_layers(compiled_layer.between_attentions)
    return model


def gradients(model: Bert, batch: Batch) -> dict[str, Tensor]:
    model.loss_sums(*batch.inputs, batch.labels).weighted(0.5, 0.25).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def compiled(model: Bert) -> Bert:
    model = copy.deepcopy(model)
    compile_pieces(model)
    return model


FORMATS = ("fp32", False), ("fp32", True), ("bf16", True)


@pytest.mark.parametrize(
    ("residual", "autocast", "backend"),
    [
        *((*each, None) for each in FORMATS),
        *(pytest.param(*each, "inductor", marks=pytest.mark.slow) for each in FORMATS),
    ],
)
def test_each_gradient_is_that_of_the_plain_layers(residual: ResidualName, autocast: bool, backend: str | None) -> None:
    torch.manual_seed(1)
    model = Bert(SHAPE)
    model.keep_residual(residual)
    for weight in model.parameters():  # biases of 0 and norms of 1 would hide what is missing
        nn.init.normal_(weight, std=0.2)
    batch = batch_of(3, 12)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        plain = gradients(model, batch)
        with compiled_by(backend):
            ours = gradients(compiled(model) if backend else joined(model), batch)
    assert plain.keys() == ours.keys()
    largest = max(gradient.norm() for gradient in plain.values())
    for name, gradient in plain.items():
        # the key's bias has no gradient but rounding: the softmax ignores it
        allowed = (5e-2 if autocast else 1e-5) * (gradient.norm() + 1e-3 * largest)
        assert (ours[name] - gradient).norm() < allowed, name


def test_products_read_copies_of_the_weights_that_are_rounded_already() -> None:
    torch.manual_seed(3)
    model, batch = Bert(SHAPE), batch_of(3, 12)
    with_copies = joined(model)
    rounded = RoundedWeights(rounded_layers(with_copies), torch.bfloat16)
    assert len(rounded.copies) == 4 * SHAPE.layers
    with torch.autocast("cpu", torch.bfloat16):
        expected, ours = gradients(joined(model), batch), gradients(with_copies, batch)
    assert all(torch.equal(ours[name], gradient) for name, gradient in expected.items())
    for copied in rounded.copies.values():
        copied.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        without_weights = with_copies(*batch.inputs)
    in_fp32 = with_copies(*batch.inputs)
    torch.testing.assert_close(in_fp32, joined(model)(*batch.inputs), atol=0, rtol=0)
    assert (without_weights.masked_lm_MV - in_fp32.masked_lm_MV).abs().max() > 0.1


def test_joined_pieces_wait_for_the_weights_of_each_layer() -> None:
    """With optimizer.sharded, a layer's weights may still arrive from other ranks."""
    torch.manual_seed(2)
    model, batch = joined(Bert(SHAPE)), batch_of(3, 12)
    expected = model(*batch.inputs)
    for layer in model.encoder_layers():
        arrived = copy.deepcopy(layer.state_dict())
        for weight in layer.parameters():
            weight.data.fill_(torch.nan)
        layer.await_weights = partial(layer.load_state_dict, arrived)
    torch.testing.assert_close(model(*batch.inputs), expected, atol=0, rtol=0)


def test_dropout_by_hashes_drops_its_share_and_the_backward_pass_drops_the_same() -> None:
    torch.manual_seed(3)
    hidden, residual = torch.randn(500, 400, requires_grad=True), torch.randn(500, 400)
    dropped = hashed_dropout(hidden, 0.1, residual) - residual
    stays = dropped.detach() != 0
    assert abs(stays.float().mean() - 0.9) < 4 * (0.9 * 0.1 / 200_000) ** 0.5
    torch.testing.assert_close(dropped.detach(), hidden.detach() * stays / 0.9)
    (gradient,) = torch.autograd.grad(dropped.sum(), hidden)
    assert torch.equal(gradient != 0, stays)


def test_hashes_of_neighbours_and_of_two_keys_are_independent() -> None:
    torch.manual_seed(4)
    shape = torch.Size((512, 512))
    keys = torch.randint(-(1 << 31), 1 << 31, (4, 2)).to(torch.int32)
    keys = torch.cat((keys, keys[:1] + 1, keys[:1] ^ 1, torch.zeros_like(keys[:1])))
    tables = [(hashed_numbers(shape, pair) >= 0).float() - 0.5 for pair in keys]
    for place, table in enumerate(tables):
        others = [table.roll(1, 0), table.roll(1, 1), table.roll(2, 1), table.roll(8, 1), *tables[:place]]
        # four deviations of a correlation of 262,144 fair coins
        assert max(abs((4 * table * other).mean().item()) for other in others) < 4.5 / 512
        assert abs(table.mean().item()) < 4.5 / 1024


def test_gelu_s_gradient_comes_with_its_sums_over_blocks_of_rows() -> None:
    torch.manual_seed(5)
    rows, width = 2 * BLOCK_ROWS + 3, 5
    gradient, product = torch.randn(2, rows, width, dtype=torch.float64)
    bias = torch.randn(width, dtype=torch.float64, requires_grad=True)
    product.requires_grad_()
    functional.gelu(product + bias, approximate="tanh").backward(gradient)
    result, sums = gelu_gradient(gradient, product.detach(), bias.detach())
    torch.testing.assert_close(result, product.grad)
    torch.testing.assert_close(sums.sum(0), bias.grad)
    assert len(sums) == 3
    torch.library.opcheck(gelu_gradient, (gradient, product.detach(), bias.detach()), test_utils="test_faketensor")


def errors_of_kernel(world: World) -> list[float]:
    """The largest differences of the kernel, in Triton's interpreter, from torch's operations."""
    from bertbench.model.gelu_kernel import run_gelu, run_gelu_gradient  # noqa: PLC0415 - Triton, which is optional

    del world
    torch.manual_seed(6)
    errors = []
    for dtype in (torch.float32, torch.bfloat16):
        gradient, product = torch.randn(2, BLOCK_ROWS + 5, 300).to(dtype)
        product[0, :2] = torch.tensor([200.0, -200.0])  # powers of e overflow
        bias = torch.randn(300)
        expected = gelu_gradient(gradient, product, bias)
        found = [torch.full_like(tensor, torch.nan) for tensor in expected]
        run_gelu_gradient(gradient, product, bias, *found)
        errors += [(a.float() - b.float()).abs().max().item() for a, b in zip(expected, found, strict=True)]
        output = torch.full_like(product, torch.nan)
        run_gelu(product, bias, output)
        errors.append((gelu(product, bias).float() - output.float()).abs().max().item())
    return errors


@pytest.mark.slow
def test_the_gpu_s_kernel_computes_the_same_in_triton_s_interpreter() -> None:
    pytest.importorskip("triton", reason="Triton is not installed (bertbench[kernels] brings it)")
    from tests.optim.test_triton import by_interpreter  # noqa: PLC0415

    ((narrow, narrow_sums, narrow_output, wide, wide_sums, wide_output),) = by_interpreter(1, errors_of_kernel)
    assert max(narrow, narrow_output) < 1e-4, "of outputs up to 200"
    assert wide <= 2**-5, "one bfloat16 rounding of values below 8"
    assert wide_output <= 1, "one bfloat16 rounding of values below 256"
    assert max(narrow_sums, wide_sums) < 1e-4, "float32 sums of 128 values"


@pytest.mark.parametrize("arch", [80, 90])
def test_its_machine_code_has_no_spills_and_loads_16_bytes_at_a_time(arch: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (bertbench[kernels] brings it)")
    from bertbench.model import gelu_kernel  # noqa: PLC0415
    from tests.optim.test_triton import machine_code  # noqa: PLC0415

    kernel = gelu_kernel.gelu_gradient_blocks
    pointers = dict(zip(kernel.arg_names, ("*bf16", "*bf16", "*fp32", "*bf16", "*fp32"), strict=False))
    constants = {"ROWS": BLOCK_ROWS, "STEP": gelu_kernel.STEP, "COLUMNS": gelu_kernel.COLUMNS}
    signature = {**pointers, "rows": "i32", "width": "i32"}
    # as Triton finds them in a run: 16-byte addresses, a width that is a multiple of 16
    divisible = (*range(len(pointers)), kernel.arg_names.index("width"))
    ptx, used = machine_code(kernel, signature, constants, arch, tmp_path, divisible)
    assert "ld.global.v4.b32" in ptx
    assert used.spill_bytes == 0
    assert used.registers <= 128, "4 blocks of 128 threads on a multiprocessor"
