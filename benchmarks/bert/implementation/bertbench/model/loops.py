"""Compute GELU, dropout and LayerNorm, on a CPU by the C++ functions in this folder, which other files call too.

The system's C++ compiler, or CXX, compiles the functions for this processor at first use. This takes seconds; one
process of a node compiles while the others wait, and the user's cache keeps the result. CXXFLAGS isn't read. Without a
compiler, torch's operations compute the same in more passes over memory.

Shapes: R tokens, D features; R2 means two numbers for each token.
"""

import ctypes
import hashlib
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.nn import functional

from bertbench.common.atomic import new_file
from bertbench.common.children import dying_with_us, temporary_folder
from bertbench.common.paths import cache_folder
from bertbench.common.turns import one_at_a_time

_SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
_HEADERS = sorted(Path(__file__).parent.glob("*.h"))
# -ffast-math isn't among them: it would remove the number that `exponential` adds and subtracts again
_FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC"]
if platform.machine() == "x86_64":  # by default compilers use half of Intel's vectors: softmax 1.3 -> 0.9 ns a score
    _FLAGS += ["-mprefer-vector-width=512"]
_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
_VALUES = 1 << 16  # possible values of a mask's random numbers
_COMPILING = "compiling loops for this processor"
_used = True


@cache
def library() -> ctypes.CDLL | str:
    """Return the compiled functions, or a line that says why there are none."""
    cxx = os.environ.get("CXX") or "c++"
    try:
        compiler = [*compiler_words(cxx), *_FLAGS]
        source = b"".join(path.read_bytes() for path in _SOURCES + _HEADERS)
        # all that the compiler reports of itself and of this processor, since different nodes may share a cache
        target = _output([*compiler, "-dM", "-E", "-x", "c++", os.devnull])
        name = hashlib.sha256(source + target + " ".join(_FLAGS).encode()).hexdigest()[:16]
        compiled = _cache() / f"loops-{name}.so"
        if not compiled.exists():
            with one_at_a_time(compiled, _COMPILING):
                _compile(compiler, compiled)
        functions = ctypes.CDLL(str(compiled))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        return f"{cxx} can't compile the loops: {error}"
    return functions if _is_sound(functions) else f"{cxx} makes the loops compute other numbers"


def compiler_words(cxx: str) -> list[str]:
    """Return the program that CXX names and its arguments, split as make and a shell do: `ccache g++ -m64`.

    The path of the program may contain blanks. Raises ValueError if a quotation mark isn't closed.
    """
    return [cxx] if Path(cxx).is_file() else shlex.split(cxx)


def _cache() -> Path:
    """Return this user's cache, or a folder of this process if the cache can't be written."""
    folder = cache_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        return folder
    print(f"{folder} can't be written, so each process compiles for itself; set XDG_CACHE_HOME", file=sys.stderr)
    return Path(temporary_folder())


def _compile(compiler: list[str], compiled: Path) -> None:
    if compiled.exists():  # another process has compiled it
        return
    print(f"{_COMPILING}; this happens once and takes 10 to 60 s", file=sys.stderr, flush=True)
    with new_file(compiled) as unfinished:
        _output([*compiler, *map(str, _SOURCES), "-o", str(unfinished)])


def _is_sound(functions: ctypes.CDLL) -> bool:
    """Return whether the compiled GELU is right. It isn't with -ffast-math, which breaks `exponential`.

    All functions but copies call `exponential`, so GELU stands for them.
    """
    values = [place / 8 - 6 for place in range(97)]
    values_in_c = (ctypes.c_float * 97)(*values)
    result = (ctypes.c_float * 97)()
    functions.gelu_fp32(values_in_c, result, ctypes.c_int64(97))
    exact = [value / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3))) for value in values]
    return all(math.isclose(ours, right, abs_tol=1e-5) for ours, right in zip(result, exact, strict=True))


def _output(command: list[str]) -> bytes:
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=dying_with_us()
    )
    return done.stdout


def described() -> str:
    """Return a line that says how attention and the operations between matrix products are computed."""
    functions = library()
    if isinstance(functions, str):
        return f"not compiled, so slower ({functions})"
    return "C++ loops compiled for this processor"


@contextmanager
def unused() -> Iterator[None]:
    """Compute by torch's operations within the context, as on a GPU and under torch.func."""
    global _used  # noqa: PLW0603
    was_used = _used
    _used = False
    try:
        yield
    finally:
        _used = was_used


def takes(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether there are functions for such tensors: fp32 or bf16 on a CPU, outside torch.compile."""
    return (
        _used
        and device.type == "cpu"
        and dtype in _TYPES
        and not torch.compiler.is_compiling()
        and not isinstance(library(), str)
    )


def run(name: str, *arguments: Any) -> None:
    """Call the variant of a C++ function for the first tensor's type.

    Arguments are contiguous tensors (inputs, and outputs to fill), integers and floats. The tensors of a dry run hold
    no numbers: the function isn't called for them.
    """
    if any(isinstance(argument, FakeTensor) for argument in arguments):
        return
    # operations on a collective's result wait for it; both lists keep the tensors alive until the call has ended
    plain = [argument.clone() if isinstance(argument, AsyncCollectiveTensor) else argument for argument in arguments]
    getattr(library(), f"{name}_{_TYPES[arguments[0].dtype]}")(*map(_in_c, plain))


def _in_c(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        assert argument.is_contiguous()
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    return argument if argument is None else ctypes.c_float(argument)


class Mask(NamedTuple):
    """Decides which elements a loop drops."""

    first: int
    second: int
    drops: int
    """How many of 65,536 elements are dropped."""
    enlarged: float
    """The factor of kept elements."""


def draw_mask(rate: float) -> Mask:
    """Draw the keys of a mask; draw nothing if the rate rounds to 0."""
    drops = round(rate * _VALUES)
    if not drops:
        return Mask(0, 0, 0, 1.0)
    keys = torch.empty(2, dtype=torch.int32).random_()
    first = second = 0
    if not isinstance(keys, FakeTensor):
        first, second = keys.tolist()
    return Mask(first, second, drops, _VALUES / (_VALUES - drops))


def apply_dropout(hidden: Tensor, rate: float) -> Tensor:
    """Return dropout of `hidden`; `rate` is 0 outside training."""
    if rate == 0:
        return hidden
    if not takes(hidden.device, hidden.dtype):
        return functional.dropout(hidden, rate)
    result: Tensor = _Dropout.apply(hidden, draw_mask(rate))
    return result


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, mask: Mask) -> Tensor:
        ctx.mask = mask
        return _dropped(hidden, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _dropped(gradient, ctx.mask), None


def _dropped(values: Tensor, mask: Mask) -> Tensor:
    result = torch.empty_like(values, memory_format=torch.contiguous_format)
    run("dropout", values.contiguous(), result, values.numel(), *mask)
    return result


def gelu(values: Tensor) -> Tensor:
    """Return GELU of each element by tanh (Hendrycks and Gimpel, arXiv 1606.08415), as google-research/bert does."""
    if not takes(values.device, values.dtype):
        return functional.gelu(values, approximate="tanh")
    result: Tensor = _Gelu.apply(values)
    return result


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        result = torch.empty_like(values)
        run("gelu", values, result, values.numel())
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        result = torch.empty_like(values)
        run("gelu_gradient", gradient.contiguous(), values, result, values.numel())
        return result


def plain_dropout(hidden: Tensor, rate: float, residual: Tensor) -> Tensor:
    """Return dropout of `hidden` by torch's operations, plus `residual`."""
    return residual + functional.dropout(hidden, rate)


class AddNorm(nn.LayerNorm):
    """Computes LayerNorm of the sum of a residual and the dropout of new values."""

    def forward(self, hidden_RD: Tensor, residual_RD: Tensor, rate: float) -> Tensor:  # type: ignore[override]
        """Return norm(residual + dropout(hidden)): [R, D]; `rate` is 0 outside training."""
        is_plain = type(self.weight) in (Tensor, nn.Parameter) and self.weight.dtype == torch.float32
        if not (is_plain and all(takes(tensor.device, tensor.dtype) for tensor in (hidden_RD, residual_RD))):
            return super().forward(plain_dropout(hidden_RD, rate, residual_RD))
        result_RD: Tensor = _AddNorm.apply(hidden_RD, residual_RD, self.weight, self.bias, draw_mask(rate), self.eps)
        return result_RD


class _AddNorm(torch.autograd.Function):
    """Keeps the sums, and each row's mean and 1 / standard deviation; the backward pass computes masks again."""

    @staticmethod
    def forward(
        ctx: Any, hidden_RD: Tensor, residual_RD: Tensor, weight_D: Tensor, bias_D: Tensor, mask: Mask, eps: float
    ) -> Tensor:
        ctx.mask = mask
        ctx.dtype = hidden_RD.dtype
        sum_RD = torch.empty_like(residual_RD, memory_format=torch.contiguous_format)
        result_RD = torch.empty_like(sum_RD)
        moments_R2 = sum_RD.new_empty((len(sum_RD), 2), dtype=torch.float32)
        tensors = (residual_RD.contiguous(), hidden_RD.contiguous(), weight_D, bias_D, sum_RD, moments_R2, result_RD)
        run(f"add_norm_{_TYPES[hidden_RD.dtype]}", *tensors, *sum_RD.shape, *mask, eps)
        ctx.save_for_backward(sum_RD, moments_R2, weight_D)
        return result_RD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor | None, ...]:
        sum_RD, moments_R2, weight_D = ctx.saved_tensors
        to_hidden_RD = torch.empty_like(sum_RD, dtype=ctx.dtype)
        to_residual_RD = torch.empty_like(sum_RD)
        to_weight_D = torch.empty_like(weight_D)
        to_bias_D = torch.empty_like(weight_D)
        read = (gradient_RD.contiguous(), sum_RD, moments_R2, weight_D)
        filled = (to_hidden_RD, to_residual_RD, to_weight_D, to_bias_D)
        run(f"add_norm_gradient_{_TYPES[ctx.dtype]}", *read, *filled, *sum_RD.shape, *ctx.mask)
        return to_hidden_RD, to_residual_RD, to_weight_D, to_bias_D, None, None
