"""The operators that observe and cast for fp8; their Triton kernels in Triton's interpreter and as machine code."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.nn import functional

from bertbench.distributed.world import World
from bertbench.model.fp8_casts import cast_gradient, cast_weight, transposed
from bertbench.model.fp8_gelu import gelu_gradient_to_fp8, gelu_to_fp8
from bertbench.model.fp8_scaling import E4M3, E5M2, raise_amax, to_fp8
from bertbench.model.linear import BLOCK_ROWS, sums_of_blocks

WITHOUT_TRITON = "Triton is not installed (bertbench[kernels] brings it)"
OF_OPERATORS = ("test_schema", "test_faketensor")
HEIGHT, WIDTH = 133, 70
"""One tile of 128 rows and a rest, one of 64 columns and a rest."""
PADDED = 144
"""HEIGHT, rounded up to a multiple of 16."""


def exact_in(dtype: torch.dtype, *shape: int) -> Tensor:
    """Numbers that the format holds: Triton's interpreter doesn't round to fp8 as a GPU does."""
    return torch.randn(*shape).clamp(-3, 3).to(dtype).float()


def test_an_amax_is_raised_and_never_lowered_and_nan_stays() -> None:
    amax = torch.tensor(2.0)
    raise_amax(amax, torch.tensor([0.5, 1.0]))
    assert amax == 2
    raise_amax(amax, torch.tensor([0.0, 7.0, 1.0], dtype=torch.bfloat16))
    assert amax == 7
    raise_amax(amax, torch.tensor([1.0, math.nan]))
    raise_amax(amax, torch.tensor([9.0]))
    assert amax.isnan()
    torch.library.opcheck(raise_amax, (torch.tensor(2.0), torch.tensor([3.0])), test_utils=OF_OPERATORS)


def test_a_matrix_is_transposed_and_gets_zeros_up_to_a_multiple_of_16_tokens() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).to(E5M2)
    found = transposed(values)
    assert (found.shape, found.dtype) == ((2, 16), E5M2)
    assert found[:, :3].tolist() == [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
    assert not found[:, 3:].float().any()
    assert transposed(values.new_zeros(16, 2)).shape == (2, 16)
    assert transposed(values.new_zeros(17, 2)).shape == (2, 32)
    torch.library.opcheck(transposed, (values,), test_utils="test_faketensor")  # the other one multiplies inputs


def test_a_weight_is_cast_for_both_products_and_observed() -> None:
    weight = torch.tensor([[0.5, -3.0, 1.0625], [7.0, 0.25, 1.1875]])
    amax = torch.tensor(0.0)
    rows, columns = cast_weight(weight, torch.tensor(2.0), amax)
    # 2.125 and 2.375 lie between numbers of e4m3, which are 0.25 apart there: to the even one
    assert rows.float().tolist() == [[1.0, -6.0, 2.0], [14.0, 0.5, 2.5]]
    assert torch.equal(columns.float(), rows.float().T)
    assert (rows.dtype, columns.dtype, columns.is_contiguous(), amax.item()) == (E4M3, E4M3, True, 7.0)
    torch.library.opcheck(cast_weight, (weight, torch.tensor(2.0), amax), test_utils=OF_OPERATORS)


def test_a_gradient_is_cast_in_both_layouts_and_summed_by_blocks() -> None:
    gradient = torch.ones(BLOCK_ROWS + 2, 3).bfloat16()
    gradient[BLOCK_ROWS] = torch.tensor([4.0, -9.0, 0.5])
    amax = torch.tensor(0.0)
    rows, columns, sums = cast_gradient(gradient, torch.tensor(2.0), amax)
    assert (rows.dtype, columns.dtype, amax.item()) == (E5M2, E5M2, 9.0)
    assert rows[BLOCK_ROWS].tolist() == [8.0, -16.0, 1.0]  # e5m2 has 16 and 20, not 18: to the even one
    assert torch.equal(columns.float(), transposed(rows).float())
    assert sums.tolist() == [[128.0, 128.0, 128.0], [5.0, -8.0, 1.5]]
    torch.library.opcheck(cast_gradient, (gradient, torch.tensor(2.0), amax), test_utils=OF_OPERATORS)


def test_gelu_is_cast_in_both_layouts() -> None:
    torch.manual_seed(3)
    product, bias, amax = torch.randn(13, 5).bfloat16(), torch.randn(5), torch.tensor(0.0)
    rows, columns = gelu_to_fp8(product, bias, torch.tensor(4.0), amax)
    exact = functional.gelu(product.float() + bias, approximate="tanh")
    assert torch.equal(rows.float(), to_fp8(exact, torch.tensor(4.0), E4M3).float())
    assert torch.equal(columns.float(), transposed(rows).float())
    assert amax == exact.abs().max()
    torch.library.opcheck(gelu_to_fp8, (product, bias, torch.tensor(4.0), amax), test_utils=OF_OPERATORS)


def test_gelu_s_gradient_is_cast_in_both_layouts_and_summed() -> None:
    torch.manual_seed(2)
    gradient, product = torch.randn(2, BLOCK_ROWS + 5, 3).bfloat16()
    bias, amax = torch.randn(3), torch.tensor(0.0)
    arguments = gradient, product, bias, torch.tensor(4.0), amax
    rows, columns, sums = gelu_gradient_to_fp8(*arguments)
    wide = (product.float() + bias).requires_grad_()
    (exact,) = torch.autograd.grad(functional.gelu(wide, approximate="tanh"), wide, gradient.float())
    assert torch.equal(rows.float(), to_fp8(exact, torch.tensor(4.0), E5M2).float())
    assert torch.equal(columns.float(), transposed(rows).float())
    torch.testing.assert_close(sums, torch.stack((exact[:BLOCK_ROWS].sum(0), exact[BLOCK_ROWS:].sum(0))))
    assert amax == exact.abs().max()
    torch.library.opcheck(gelu_gradient_to_fp8, arguments, test_utils=OF_OPERATORS)


def test_one_compilation_of_the_operators_serves_every_number_of_tokens() -> None:
    compiled = CompileCounter()

    def cast_all(values: Tensor, scale: Tensor, amax: Tensor) -> list[Tensor]:
        bias = values.new_ones(3, dtype=torch.float32)
        results = [*cast_gradient(values, scale, amax), *gelu_to_fp8(values, bias, scale, amax)]
        results += gelu_gradient_to_fp8(values, values, bias, scale, amax)
        return [*results, transposed(results[0])]

    of_any_size = torch.compile(cast_all, backend=compiled, dynamic=True, fullgraph=True)
    for tokens in (13, 17, 300):
        of_any_size(torch.ones(tokens, 3).bfloat16(), torch.tensor(2.0), torch.tensor(0.0))
    assert compiled.frame_count == 1


class Written:
    """Where a kernel writes in both layouts, before it has."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.plain = torch.full((HEIGHT, WIDTH), 1.0).to(dtype)
        self.transposed = torch.full((WIDTH, PADDED), 1.0).to(dtype)
        self.sums = torch.full((2, WIDTH), 1.0)
        self.amax = torch.tensor(0.25)

    def into(self, scale: float) -> Any:
        """A kernel's argument."""
        from bertbench.model.fp8_kernels import Cast  # noqa: PLC0415 - Triton, which is optional

        return Cast(self.plain, self.transposed, torch.tensor(scale), self.amax)

    def holds(self, values: Tensor, scale: float) -> tuple[bool, bool, bool]:
        """Whether both matrices hold the values times the scale, and the amax covers them."""
        cast = to_fp8(values, torch.tensor(scale), self.plain.dtype)
        return (
            torch.equal(self.plain.float(), cast.float()),
            torch.equal(self.transposed.float(), transposed(cast).float()),
            self.amax.item() == values.abs().max().item(),
        )


def found_by_kernels(world: World) -> dict[str, Any]:
    """What the kernels compute in Triton's interpreter, beside torch's operations."""
    from bertbench.model import fp8_kernels  # noqa: PLC0415 - Triton, which is optional

    del world
    torch.manual_seed(7)
    amax = torch.tensor(0.25)
    magnitudes = torch.rand(5_001)
    amaxes = []
    for last in (3.0, 2.0, math.nan, 9.0):
        magnitudes[5_000] = last
        fp8_kernels.run_raise_amax(amax, magnitudes)
        amaxes.append(amax.item())

    values = exact_in(E4M3, HEIGHT, WIDTH)
    turned = torch.ones(WIDTH, PADDED).to(E4M3)
    fp8_kernels.run_transpose(values.to(E4M3), turned)

    weight = values / 2
    weight[132, 69] = -1e6
    of_weight = Written(E4M3)
    fp8_kernels.run_cast(weight, of_weight.into(2.0))

    gradient = exact_in(E5M2, HEIGHT, WIDTH).bfloat16()
    of_gradient = Written(E5M2)
    fp8_kernels.run_cast(gradient, of_gradient.into(4.0), of_gradient.sums)

    # GELU's slope is 1 and 0 where |value| is large, so that outputs and gradients stay what fp8 holds
    product = torch.where(torch.rand(HEIGHT, WIDTH) < 0.5, 28.0, -28.0).bfloat16()
    bias = torch.full((WIDTH,), 2.0)
    of_gelu, of_slope = Written(E4M3), Written(E5M2)
    fp8_kernels.run_gelu(product, bias, of_gelu.into(4.0))
    fp8_kernels.run_gelu_gradient(gradient, product, bias, of_slope.into(4.0), of_slope.sums)
    slope = torch.where(product > 0, gradient, 0).float()
    return {
        "amaxes": amaxes,
        "transposed": (torch.equal(turned.float(), transposed(values.to(E4M3)).float()),),
        "weight": of_weight.holds(weight, 2.0),
        "gradient": of_gradient.holds(gradient.float(), 4.0),
        "gradient's sums": (torch.allclose(of_gradient.sums, sums_of_blocks(gradient.float())),),
        "GELU": of_gelu.holds(torch.where(product > 0, 30.0, 0.0), 4.0),
        "GELU's gradient": of_slope.holds(slope, 4.0),
        "its sums": (torch.allclose(of_slope.sums, sums_of_blocks(slope)),),
    }


@pytest.mark.slow
def test_the_gpu_s_kernels_compute_the_same_in_triton_s_interpreter() -> None:
    pytest.importorskip("triton", reason=WITHOUT_TRITON)
    from tests.optim.test_triton import by_interpreter  # noqa: PLC0415

    (found,) = by_interpreter(1, found_by_kernels)
    *numbers, last = found.pop("amaxes")
    assert numbers[:2] == [3.0, 3.0] and math.isnan(numbers[2]) and math.isnan(last)
    assert {name: all(equal) for name, equal in found.items()} == dict.fromkeys(found, True), found


class Compiled(NamedTuple):
    """What is known of a kernel before it is compiled."""

    pointers: dict[str, str]
    """The types of its arguments that point to tensors."""
    rounding: str
    """The instruction by which it rounds to fp8."""


_E4M3, _E5M2 = "*fp8e4nv", "*fp8e5"
_SCALED = {"scales": "*fp32", "amax_bits": "*i32"}
KERNELS = {
    "cast_tiles of a weight": Compiled(
        {"values": "*fp32", "casts": _E4M3, "transposed_casts": _E4M3, **_SCALED}, "e4m3x2"
    ),
    "cast_tiles of a gradient": Compiled(
        {"values": "*bf16", "casts": _E5M2, "transposed_casts": _E5M2, "sums": "*fp32", **_SCALED}, "e5m2x2"
    ),
    "gelu_tiles": Compiled(
        {"products": "*bf16", "biases": "*fp32", "casts": _E4M3, "transposed_casts": _E4M3, **_SCALED}, "e4m3x2"
    ),
    "gelu_gradient_tiles": Compiled(
        {
            "gradients": "*bf16", "products": "*bf16", "biases": "*fp32", "casts": _E5M2, "transposed_casts": _E5M2,
            "sums": "*fp32", **_SCALED,
        },
        "e5m2x2",
    ),
}  # fmt: skip


ARCHITECTURES = [89, 90]
"""L40S, for which our kernels clamp, and H100, for which the instruction does, as for later GPUs."""


@pytest.mark.parametrize("values", ["*fp32", "*bf16"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_amax_s_machine_code_reads_16_bytes_at_a_time_and_compares_integers(
    arch: int, values: str, tmp_path: Path
) -> None:
    pytest.importorskip("triton", reason=WITHOUT_TRITON)
    from bertbench.model import fp8_kernels  # noqa: PLC0415
    from tests.optim.test_triton import machine_code  # noqa: PLC0415

    signature = {"amax_bits": "*i32", "magnitudes": values, "count": "i32"}
    constants = {"BLOCK": fp8_kernels.BLOCK}
    ptx, used = machine_code(fp8_kernels.raise_amax_blocks, signature, constants, arch, tmp_path, divisible=(0, 1, 2))
    assert "ld.global.v4.b32" in ptx
    assert ".max.s32" in ptx, "an atomic maximum of integers, among which NaN is the largest"
    assert used.spill_bytes == 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_their_machine_code_rounds_to_nearest_without_spills(name: str, arch: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason=WITHOUT_TRITON)
    from bertbench.model import fp8_kernels  # noqa: PLC0415

    compiled = KERNELS[name]
    clamps = arch == 89
    constants = {"ROWS": BLOCK_ROWS, "COLUMNS": fp8_kernels.TILE_COLUMNS, "CLAMPS": clamps}
    if "sums" not in compiled.pointers and name.startswith("cast_tiles"):
        constants["sums"] = None
    ptx, used = of_tiles(getattr(fp8_kernels, name.split(maxsplit=1)[0]), compiled.pointers, constants, arch, tmp_path)
    # For 8.9, Triton 3.7 rounds fp32 numbers to fp16 first, toward zero
    source = "" if arch == 89 else ".f32"
    assert f"cvt.rn.satfinite.{compiled.rounding}{source}" in ptx
    if clamps:  # Triton 3.8 clamps by one instruction, which compares magnitudes
        assert ("max.NaN.f32" in ptx and "min.NaN.f32" in ptx) or "min.NaN.xorsign.abs.f32" in ptx, "NaN stays"
    assert ".relaxed." in ptx, "an atomic maximum of another order would empty the L1 cache"
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx
    assert used.spill_bytes == 0
    assert used.registers <= 128, "2 blocks of 256 threads on a multiprocessor"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_transposition_s_machine_code_moves_16_bytes_at_a_time(arch: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason=WITHOUT_TRITON)
    from bertbench.model import fp8_kernels  # noqa: PLC0415

    pointers = {"values": "*u8", "results": "*u8"}
    constants = {"SIDE": fp8_kernels.TRANSPOSED_SIDE}
    ptx, used = of_tiles(fp8_kernels.transpose_tiles, pointers, constants, arch, tmp_path)
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx
    assert used.spill_bytes == 0
    assert used.registers <= 128


def of_tiles(
    kernel: Any, pointers: dict[str, str], constants: dict[str, Any], arch: int, folder: Path
) -> tuple[str, Any]:
    """The PTX of a kernel on tiles, and what its machine code takes; columns and padded rows are multiples of 16."""
    from bertbench.model import fp8_kernels  # noqa: PLC0415
    from tests.optim.test_triton import machine_code  # noqa: PLC0415

    numbers = {"rows": "i32", "columns": "i32", "padded": "i32", "largest": "fp32"}
    types = {**pointers, **numbers}
    signature = {name: types[name] for name in kernel.arg_names if name in types}
    multiples_of_16 = (*pointers, "columns", "padded")
    divisible = [kernel.arg_names.index(name) for name in multiples_of_16]
    return machine_code(kernel, signature, constants, arch, folder, divisible, fp8_kernels.WARPS)
