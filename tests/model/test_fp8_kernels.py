"""The operators that observe and cast for fp8; their Triton kernels in Triton's interpreter and as machine code."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bertbench.distributed.world import World
from bertbench.model.fp8_scaling import E4M3, E5M2, raise_amax, to_fp8
from bertbench.model.fp8_weight import cast_weight
from bertbench.model.gelu_gradient import ROWS, gelu_gradient, gelu_gradient_to_fp8

WITHOUT_TRITON = "Triton is not installed (bertbench[kernels] brings it)"
OF_OPERATORS = ("test_schema", "test_faketensor")
HEIGHT, WIDTH = 70, 133
"""Of a weight: one tile of 64 and a rest, two tiles and a rest."""


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


def test_a_weight_is_cast_for_both_products_and_observed() -> None:
    weight = torch.tensor([[0.5, -3.0, 1.0625], [7.0, 0.25, 1.1875]])
    amax = torch.tensor(0.0)
    rows, columns = cast_weight(weight, torch.tensor(2.0), amax)
    # 2.125 and 2.375 lie between numbers of e4m3, which are 0.25 apart there: to the even one
    assert rows.float().tolist() == [[1.0, -6.0, 2.0], [14.0, 0.5, 2.5]]
    assert torch.equal(columns.float(), rows.float().T)
    assert (rows.dtype, columns.dtype, columns.is_contiguous(), amax.item()) == (E4M3, E4M3, True, 7.0)
    torch.library.opcheck(cast_weight, (weight, torch.tensor(2.0), amax), test_utils=OF_OPERATORS)


def test_gelu_s_gradient_in_fp8_is_the_cast_of_the_one_in_bf16() -> None:
    torch.manual_seed(2)
    gradient, product = torch.randn(2, 13, 5).bfloat16()
    arguments = gradient, product, torch.randn(5), torch.tensor(4.0), torch.tensor(0.0)
    result, sums, result8 = gelu_gradient_to_fp8(*arguments)
    expected, expected_sums = gelu_gradient(*arguments[:3])
    assert torch.equal(result, expected) and torch.equal(sums, expected_sums)
    assert torch.equal(result8.float(), to_fp8(result, torch.tensor(4.0), E5M2).float())
    assert arguments[4] == result.abs().max()
    torch.library.opcheck(gelu_gradient_to_fp8, arguments, test_utils=OF_OPERATORS)


def found_by_kernels(world: World) -> dict[str, Any]:
    """What the kernels compute in Triton's interpreter, beside torch's operations."""
    from bertbench.model.fp8_kernels import run_cast_weight, run_raise_amax  # noqa: PLC0415 - Triton, which is optional
    from bertbench.model.gelu_kernel import Cast, run_kernel  # noqa: PLC0415

    del world
    torch.manual_seed(7)
    amax = torch.tensor(0.25)
    magnitudes = torch.rand(5_001)
    magnitudes[5_000] = 3.0
    amaxes = []
    for last in (3.0, 2.0, math.nan, 9.0):
        magnitudes[5_000] = last
        run_raise_amax(amax, magnitudes)
        amaxes.append(amax.item())

    weight = exact_in(E4M3, HEIGHT, WIDTH) / 2
    weight[69, 132] = -1e6
    rows, columns, amax = (
        torch.zeros(HEIGHT, WIDTH, dtype=E4M3),
        torch.zeros(WIDTH, HEIGHT, dtype=E4M3),
        torch.zeros(()),
    )
    run_cast_weight(weight, rows, columns, torch.tensor(2.0), amax)
    expected_weight = to_fp8(weight, torch.tensor(2.0), E4M3).float()

    # GELU's slope is 1 and 0 where |value| is large, so that gradients stay what fp8 holds
    gradient = exact_in(E5M2, ROWS + 5, 300).bfloat16()
    product = torch.where(torch.rand(ROWS + 5, 300) < 0.5, 30.0, -30.0).bfloat16()
    result, sums, result8 = torch.zeros_like(gradient), torch.zeros(2, 300), torch.zeros(ROWS + 5, 300, dtype=E5M2)
    largest = torch.tensor(0.0)
    cast = Cast(result8, torch.tensor(4.0), largest)
    run_kernel(gradient, product, torch.zeros(300), result, sums, ROWS, cast)
    expected_gradient = torch.where(product > 0, gradient, 0)
    return {
        "amaxes": amaxes,
        "weight": (torch.equal(rows.float(), expected_weight), torch.equal(columns.float(), expected_weight.T)),
        "weight's amax": amax.item(),
        "gradient": (
            torch.equal(result, expected_gradient),
            torch.equal(result8.float(), 4 * expected_gradient.float()),
        ),
        "gradient's amax": (largest.item(), expected_gradient.abs().max().item()),
    }


@pytest.mark.slow
def test_the_gpu_s_kernels_compute_the_same_in_triton_s_interpreter() -> None:
    pytest.importorskip("triton", reason=WITHOUT_TRITON)
    from tests.optim.test_triton import by_interpreter  # noqa: PLC0415

    (found,) = by_interpreter(1, found_by_kernels)
    *numbers, last = found["amaxes"]
    assert numbers[:2] == [3.0, 3.0] and math.isnan(numbers[2]) and math.isnan(last)
    assert (found["weight"], found["weight's amax"]) == ((True, True), 1e6)
    assert found["gradient"] == (True, True)
    amax, expected = found["gradient's amax"]
    assert amax == expected > 0


def registers_of(name: str, arch: int, folder: Path) -> int:
    """The registers of a kernel's thread, which moves 16 bytes at a time and spills nothing."""
    from bertbench.model import fp8_kernels, gelu_kernel  # noqa: PLC0415
    from tests.optim.test_triton import machine_code  # noqa: PLC0415

    kernel: Any
    if name == "weight":
        kernel = fp8_kernels.cast_weight_tiles
        pointers = ("*fp32", "*fp8e4nv", "*fp8e4nv", "*fp32", "*i32")
        sizes = {"height": "i32", "width": "i32"}
        multiples_of_16 = ("height", "width")
        constants = {"SIDE": fp8_kernels.SIDE}
        rounding = "cvt.rn.satfinite.e4m3x2"
    else:
        kernel = gelu_kernel.gelu_gradient_blocks
        pointers = ("*bf16", "*bf16", "*fp32", "*bf16", "*fp32", "*fp8e5", "*fp32", "*i32")
        sizes = {"rows": "i32", "width": "i32"}
        multiples_of_16 = ("width",)
        constants = {"ROWS": ROWS, "STEP": gelu_kernel.STEP, "COLUMNS": gelu_kernel.COLUMNS}
        rounding = "cvt.rn.satfinite.e5m2x2"
    signature = {**dict(zip(kernel.arg_names, pointers, strict=False)), **sizes, "largest": "fp32"}
    divisible = (*range(len(pointers)), *(kernel.arg_names.index(size) for size in multiples_of_16))
    ptx, used = machine_code(kernel, signature, constants, arch, folder, divisible)
    # For 8.9, Triton 3.7 rounds fp32 numbers to fp16 first, toward zero
    source = "" if arch == 89 else ".f32"
    assert rounding + source in ptx
    assert "max.NaN.f32" in ptx and "min.NaN.f32" in ptx, "a clamp that keeps NaN"
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx
    assert used.spill_bytes == 0
    return used.registers


ARCHITECTURES = [89, 90, 100, 120]  # all that have products in fp8: L40S, H100, B200, RTX PRO 6000


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
@pytest.mark.parametrize("name", ["weight", "gelu"])
def test_their_machine_code_rounds_to_nearest_without_spills(name: str, arch: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason=WITHOUT_TRITON)
    assert registers_of(name, arch, tmp_path) <= 128, "4 blocks of 128 threads on a multiprocessor"
