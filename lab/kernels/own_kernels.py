"""Count the instructions of our own kernels that compute GELU and cast to fp8, compiled for an absent GPU.

Bytes bound a kernel only if its instructions take less time. Each of an H100's 132 multiprocessors issues at most 4
instructions of a warp in a cycle. At 1.6 GHz and 2.85 TB/s, 4 bytes of an element, as in GELU, take as long as 38
instructions, and 6 bytes, as in its gradient, as long as 57; 24 and 36, if a multiprocessor issues 2.5 in a cycle.
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.model.fp8_scaling import FP8_CAPABILITY
from bertbench.model.linear import BLOCK_ROWS
from lab.kernels.absent_gpu import Gpu
from lab.kernels.machine_code import usage

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
_AFTER_THE_END = ("NOP", "BRA")  # what fills the last line of a kernel's code
_SATURATES = (9, 0)  # conversions to fp8, from this compute capability on: see model/fp8_kernels.py
_SIZES = {"rows": "i32", "width": "i32", "columns": "i32", "padded": "i32", "largest": "fp32"}
_SCALED = {"scales": "*fp32", "amax_bits": "*i32"}
_MULTIPLES_OF_16 = ("width", "columns", "padded")
_THREADS = 32  # of a warp


class OwnKernel(NamedTuple):
    """A kernel as a run launches it on BERT-Large's tensors."""

    function: Any
    pointers: dict[str, str]
    """The types of its arguments that point to tensors."""
    constants: dict[str, Any]
    warps: int
    elements: int
    """Elements of a program at a time."""


class Instructions(NamedTuple):
    """What a kernel's machine code takes."""

    kernel: str
    arch: str
    instructions_per_element: float
    """All of the code's instructions, divided by the elements that a thread has at a time. Code outside of loops counts
    as if it were inside."""
    spill_bytes: int


def own_kernels(gpu: Gpu) -> dict[str, OwnKernel]:
    """Return the kernels by name; those in fp8 only for a GPU that has products in fp8."""
    from bertbench.model import fp8_kernels, gelu_kernel  # noqa: PLC0415 - Triton, which is optional

    blocks = {"ROWS": BLOCK_ROWS, "STEP": gelu_kernel.STEP, "COLUMNS": gelu_kernel.COLUMNS}
    of_block = gelu_kernel.STEP * gelu_kernel.COLUMNS
    product = {"products": "*bf16", "biases": "*fp32"}
    gradient = {"gradients": "*bf16", **product}
    results = {"results": "*bf16"}
    kernels = {
        "GELU": OwnKernel(gelu_kernel.gelu_blocks, product | results, blocks, 4, of_block),
        "GELU's gradient": OwnKernel(
            gelu_kernel.gelu_gradient_blocks, gradient | results | {"sums": "*fp32"}, blocks, 4, of_block
        ),
    }
    if gpu.capability < FP8_CAPABILITY:
        return kernels
    tiles = {"ROWS": BLOCK_ROWS, "COLUMNS": fp8_kernels.TILE_COLUMNS, "CLAMPS": gpu.capability < _SATURATES}
    of_tile = BLOCK_ROWS * fp8_kernels.TILE_COLUMNS
    warps = fp8_kernels.WARPS
    e4m3 = {"casts": "*fp8e4nv", "transposed_casts": "*fp8e4nv", **_SCALED}
    e5m2 = {"casts": "*fp8e5", "transposed_casts": "*fp8e5", "sums": "*fp32", **_SCALED}
    return kernels | {
        "GELU in fp8": OwnKernel(fp8_kernels.gelu_tiles, product | e4m3, tiles, warps, of_tile),
        "GELU's gradient in fp8": OwnKernel(fp8_kernels.gelu_gradient_tiles, gradient | e5m2, tiles, warps, of_tile),
        "cast of a gradient to fp8": OwnKernel(
            fp8_kernels.cast_tiles, {"values": "*bf16"} | e5m2, tiles, warps, of_tile
        ),
    }


def count_instructions(arch: str, gpu: Gpu) -> list[Instructions]:
    """Compile each of our kernels for `gpu`, and count its instructions."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, kernel in own_kernels(gpu).items():
            cubin = _machine_code(kernel, gpu)
            instructions = _instructions(cubin, Path(folder))
            of_a_thread = kernel.elements / (kernel.warps * _THREADS)
            rows.append(
                Instructions(
                    kernel=name,
                    arch=arch,
                    instructions_per_element=round(len(instructions) / of_a_thread, 1),
                    spill_bytes=usage(cubin, Path(folder)).spill_bytes,
                )
            )
    return rows


def _machine_code(kernel: OwnKernel, gpu: Gpu) -> bytes:
    import triton  # noqa: PLC0415 - optional

    names = kernel.function.arg_names
    types = kernel.pointers | _SIZES
    signature = {name: types.get(name, "constexpr") for name in names}
    constants = {(names.index(name),): value for name, value in kernel.constants.items()}
    aligned = [name for name in names if name in kernel.pointers or name in _MULTIPLES_OF_16]
    source = triton.compiler.ASTSource(
        kernel.function,
        signature,
        constexprs=constants,
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    target = triton.backends.compiler.GPUTarget("cuda", gpu.compute_capability, _THREADS)
    cubin: bytes = triton.compile(source, target=target, options={"num_warps": kernel.warps}).asm["cubin"]
    return cubin


def _instructions(cubin: bytes, folder: Path) -> list[str]:
    """Return the names of a kernel's instructions."""
    from triton import knobs  # noqa: PLC0415 - optional

    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [knobs.nvidia.cuobjdump.path, "--dump-sass", str(path)]
    code = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names: list[str] = _INSTRUCTION.findall(code)
    while names and names[-1] in _AFTER_THE_END:
        names.pop()
    return names
