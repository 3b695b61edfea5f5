"""Each autograd.Function that torch.compile traces gives the gradients of eager mode, on every supported torch."""

import ast
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bertbench
from bertbench.model import (
    attention,
    bert,
    compiled_layer,
    fp8_feed_forward,
    fp8_linear,
    head_loss,
    linear,
    loops,
    loss,
)
from bertbench.model.loss import IGNORED

UNTRACED = {  # for tensors of a CPU, and outside the compiled pieces or guarded by is_compiling
    attention._Attention, bert._Tied, linear._ByProducts, loops._AddNorm, loops._Dropout, loops._Gelu,
    loss._CrossEntropySum,
    attention._FlashAttention,  # of a GPU; its gradient is an operator that the compiler doesn't enter
    # round differently when they are compiled: tests/model/test_fp8_linear.py has their bounds
    fp8_linear._Product, fp8_feed_forward._FeedForward,
}  # fmt: skip


MAY_CHANGE_NOTHING = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "cpu", "cuda"}
"""What autograd does not see where a tensor is that already: torch 2.11's compiler loses the output's gradient then."""


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype).requires_grad_()


def weight_and_copy(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A weight, and the copy that products read."""
    weight = drawn(3, 7)
    return weight, weight.detach().to(dtype)


ARGUMENTS: dict[Any, Callable[[torch.dtype], tuple[Any, ...]]] = {
    compiled_layer._Product: lambda dtype: (drawn(5, 7, dtype=dtype), *weight_and_copy(dtype)),
    compiled_layer._Linear: lambda dtype: (drawn(5, 7, dtype=dtype), *weight_and_copy(dtype), drawn(3), True),
    compiled_layer._BiasGelu: lambda dtype: (drawn(5, 7, dtype=dtype), drawn(7)),
    compiled_layer._LayerNorm: lambda dtype: (drawn(5, 7), drawn(7), drawn(7), 1e-12, dtype),
    compiled_layer._Restored: lambda dtype: (drawn(5, 7, dtype=dtype), torch.randn(7), torch.randn(7)),
    head_loss._HeadLoss: lambda dtype: (drawn(3, 7), drawn(11, 7), drawn(11), torch.tensor([4, IGNORED, 10]), dtype),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", ARGUMENTS, ids=lambda function: function.__name__)
def test_gradients_are_eager_s_whichever_outputs_are_used(function: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    arguments = ARGUMENTS[function](dtype)
    inputs = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]
    outputs = len(as_tuple(function.apply(*arguments)))
    for used in (some for count in range(1, outputs + 1) for some in combinations(range(outputs), count)):

        def weighted(*arguments: Any, used: tuple[int, ...] = used) -> Tensor:
            results = as_tuple(function.apply(*arguments))
            return sum(((place + 1) * results[place].float().square().sum() for place in used), torch.zeros(()))

        torch._dynamo.reset()
        compiled = torch.compile(weighted, backend="aot_eager", fullgraph=True)
        expected, found = (torch.autograd.grad(run(*arguments), inputs) for run in (weighted, compiled))
        for plain, ours in zip(expected, found, strict=True):
            assert plain.norm() > 0
            assert (ours - plain).norm() <= 4 * torch.finfo(dtype).eps * plain.norm(), used


def as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_the_model_has_no_other_functions() -> None:
    ours = {one for one in torch.autograd.Function.__subclasses__() if one.__module__.startswith("bertbench.model.")}
    assert ours == {*ARGUMENTS, *UNTRACED}


def sources(word: str) -> list[Path]:
    """Our files that contain a word: parsing all takes seconds."""
    return [path for path in Path(*bertbench.__path__).rglob("*.py") if word in path.read_text()]


def test_a_functions_result_is_converted_by_in_format() -> None:
    example = "class Any(Function):\n def forward(x):\n  y = x.to(z)\n  if y:\n   return y * 2, y\n  return y.float()"
    assert [line.split(":")[1] for line in conversions(Path("example"), example)] == ["3", "6"]
    assert [line for path in sources("Function)") for line in conversions(path, path.read_text())] == []


def conversions(path: Path, code: str) -> Iterator[str]:
    """Where Function.forward returns the result of a method that may change nothing."""
    for function in ast.walk(ast.parse(code)):
        if not (isinstance(function, ast.ClassDef) and ast.unparse(function.bases[:1]).endswith("Function")):
            continue
        (forward,) = [one for one in function.body if isinstance(one, ast.FunctionDef) and one.name == "forward"]
        nodes = list(ast.walk(forward))
        returned = [part for node in nodes if isinstance(node, ast.Return) for part in parts(node.value)]
        names = {ast.unparse(part) for part in returned}
        assigned = [node for node in nodes if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names]
        for value in (*(node.value for node in assigned), *returned):
            if isinstance(value, ast.Call) and getattr(value.func, "attr", "") in MAY_CHANGE_NOTHING:
                yield f"{path}:{value.lineno}: {ast.unparse(value)}; convert it by model/encoder.py's in_format"


def parts(value: ast.expr | None) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.Tuple) else [value] if value else []


def test_options_of_inductor_are_set_only_where_this_torch_has_them() -> None:
    example = "torch._inductor.config.a = config.b = 1\ntorch._inductor.config.triton.c: int = 2\na = torch._inductor"
    assert [line.split(":")[1] for line in writes(Path("example"), example)] == ["1", "2"]
    assert [line for path in sources("_inductor") for line in writes(path, path.read_text())] == []


def writes(path: Path, code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and "_inductor" in ast.unparse(node):
            yield f"{path}:{node.lineno}: {ast.unparse(node)}; set it in model/compiled.py's configure_compiler"
