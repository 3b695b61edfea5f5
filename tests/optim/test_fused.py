"""Fused passes and passes over blocks against the multi-tensor ones; compiling takes seconds: a test sees all of it."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import bertbench.optim.adam
from bertbench.model.compiled import compiler_obstacle
from bertbench.optim.adam import MultiTensorAdam, blocks_step, foreach_step, native_adam_step
from bertbench.optim.fused import FusedStep
from bertbench.optim.interface import StepFunction, StepScalars, StepTensors
from tests.optim.drawn import adam, draw_gradients, lamb, matrices

OPTIONS = lamb(beta1=0.8, beta2=0.95, weight_decay=0.1)


@pytest.mark.parametrize("name", ["lamb", "lamb in blocks", "adam"])
def test_fused_passes_give_the_results_of_the_multi_tensor_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # the largest tensor has a rest, the smallest none
    monkeypatch.setattr(bertbench.optim.adam, "BLOCK_PER_THREAD", 10)
    options = adam(**OPTIONS.model_dump(include={"beta1", "beta2", "weight_decay"})) if name == "adam" else OPTIONS
    if name == "lamb" and (reason := compiler_obstacle(torch.device("cpu"))):
        pytest.skip(reason)
    fused_step: StepFunction = {"lamb in blocks": blocks_step, "adam": native_adam_step}.get(name) or FusedStep(
        torch.device("cpu")
    )
    ours = matrices((7, 3), (6, 5), (129, 31), (4,))
    with torch.no_grad():
        ours[0].zero_()  # no norm: a trust ratio of 1
    theirs = copy.deepcopy(ours)
    optimizers = [
        MultiTensorAdam(parameters, options, {parameters[1]: 3}, step)
        for parameters, step in ((ours, fused_step), (theirs, foreach_step))
    ]
    for number, taken in enumerate((1.0, 0.0, 1.0)):
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            draw_gradients(parameters, number)
            if not taken:
                for parameter in parameters:
                    parameter.grad.view(-1)[1] = torch.inf
            optimizer.step(0.01, torch.tensor(0.5 * taken), torch.tensor(taken))
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-5)


def test_the_largest_tensor_is_the_first_to_be_compiled_for_and_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = CompileCounter()
    sizes: list[int] = []

    def counting_compile(function: Callable[..., Any], *, dynamic: bool, **_: Any) -> Callable[..., Any]:
        compiled = compile_(function, backend=graphs, dynamic=dynamic, fullgraph=True)

        def run(first: Any, *rest: Any) -> Any:
            sizes.append((first[0] if isinstance(first, tuple) else first).numel())
            return compiled(first, *rest)

        return run

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", counting_compile)
    torch._dynamo.reset()
    # a rank's first matrix can be the smallest: token types of 2 rows
    parameters = [nn.Parameter(torch.ones(shape)) for shape in ((2, 8), (97, 8), (11, 8))]
    optimizer = MultiTensorAdam(parameters, OPTIONS, matrix_step=FusedStep(torch.device("cpu")))
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step(0.1)
    assert sizes == 2 * [776, 88, 16]
    assert graphs.frame_count == 1, "the first pass once; the second is torch's own on a CPU"


def test_blocks_take_norms_of_tensors_that_ranks_share() -> None:
    generator = torch.Generator().manual_seed(5)

    def half_of(whole: Tensor, step: Callable[..., None]) -> Tensor:
        """The first rows, updated as a rank does that holds half of a tensor whose halves have equal norms."""
        weight, gradient = whole[0].clone(), whole[1].clone()
        state = StepTensors([weight], [gradient], [torch.zeros(40)], [torch.zeros(40)])
        step(state, OPTIONS, StepScalars(0.1, 0.2, 0.05, None, None, 1), lambda norms: norms * 2**0.5)
        return weight

    whole = torch.randn(2, 40, generator=generator)
    torch.testing.assert_close(half_of(whole, blocks_step), half_of(whole, foreach_step), atol=1e-6, rtol=1e-5)


def test_blocks_give_the_same_bits_wherever_a_tensor_lies_in_memory() -> None:
    # copies of the weights on different ranks must not drift apart
    generator = torch.Generator().manual_seed(5)
    weight, gradient = (torch.randn(997, 71, generator=generator) for _ in range(2))
    results = []
    for offset in (0, 1, 5, 16):
        parameter = nn.Parameter(torch.empty(weight.numel() + offset)[offset:].view(weight.shape))
        parameter.data.copy_(weight)
        parameter.grad = torch.empty(weight.numel() + 16 - offset)[16 - offset :].view(weight.shape)
        parameter.grad.copy_(gradient)
        MultiTensorAdam([parameter], OPTIONS, matrix_step=blocks_step).step(0.01)
        results.append(parameter.detach().clone())
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_without_a_compiler_one_line_says_so() -> None:
    torch._dynamo.reset()
    with torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}):
        found = compiler_obstacle(torch.device("cpu"))
    assert re.fullmatch(r"[^\n]*No working C[+][+] compiler found[^\n]*", found or "")
