"""Fused passes and passes over blocks against the multi-tensor ones; compiling takes seconds: a test sees all of it."""

import copy
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import bertbench.optim.adam
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.optim.adam import MultiTensorAdam, blocks_step, foreach_step, native_adam_step
from bertbench.optim.buckets import Buckets, bucket_table
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.state import State, Step, StepScalars, matrices_and_vectors
from bertbench.optim.zero1 import LogicalSlices
from lab.bench.budgets import budgets
from tests.optim.drawn import adam, lamb

OPTIONS = lamb(beta1=0.8, beta2=0.95, weight_decay=0.1)


@pytest.mark.parametrize("name", ["lamb", "lamb in blocks", "adam"])
def test_fused_passes_do_what_the_multi_tensor_ones_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # the largest tensor has a rest, the smallest none
    monkeypatch.setattr(bertbench.optim.adam, "BLOCK_PER_THREAD", 10)
    options = adam(**OPTIONS.model_dump(include={"beta1", "beta2", "weight_decay"})) if name == "adam" else OPTIONS
    try:
        fused_step: Step = {"lamb in blocks": blocks_step, "adam": native_adam_step}.get(name) or FusedStep(
            torch.device("cpu")
        )
    except CompilerMissing as error:
        pytest.skip(str(error))
    generator = torch.Generator().manual_seed(5)
    ours = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((7, 3), (6, 5), (129, 31), (4,))]
    with torch.no_grad():
        ours[0].zero_()  # no norm: a trust ratio of 1
    theirs = copy.deepcopy(ours)
    optimizers = [
        MultiTensorAdam(parameters, options, {parameters[1]: 3}, step)
        for parameters, step in ((ours, fused_step), (theirs, foreach_step))
    ]
    for taken in (1.0, 0.0, 1.0):
        for ours_one, theirs_one in zip(ours, theirs, strict=True):
            ours_one.grad = torch.randn(ours_one.shape, generator=generator)
            if not taken:
                ours_one.grad.view(-1)[1] = torch.inf
            theirs_one.grad = ours_one.grad.clone()
        for optimizer in optimizers:
            optimizer.step(0.01, torch.tensor(0.5 * taken), torch.tensor(taken))
    for parameter, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(parameter, expected, atol=2e-6, rtol=1e-5)


def test_the_largest_tensor_is_the_first_to_be_compiled_for_and_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = CompileCounter()
    sizes: list[int] = []

    def fused(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = torch.compile(function, backend=graphs, dynamic=True, fullgraph=True)

        def run(first: Any, *rest: Any) -> Any:
            sizes.append((first[0] if isinstance(first, tuple) else first).numel())
            return compiled(first, *rest)

        return run

    monkeypatch.setattr("bertbench.optim.fused._fuse", fused)
    torch._dynamo.reset()
    # a rank's first matrix can be the smallest: token types of 2 rows
    parameters = [nn.Parameter(torch.ones(shape)) for shape in ((2, 8), (97, 8), (11, 8))]
    optimizer = MultiTensorAdam(parameters, OPTIONS, matrix_step=FusedStep(torch.device("cpu")))
    tried = graphs.frame_count
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step(0.1)
    assert sizes == [97, 776, 88, 16, 776, 88, 16], "a trial, then two steps"
    assert graphs.frame_count - tried == 1, "the first pass once; the second is torch's own on a CPU"


def test_blocks_take_norms_of_tensors_that_ranks_share() -> None:
    generator = torch.Generator().manual_seed(5)

    def half_of(whole: torch.Tensor, step: Callable[..., None]) -> torch.Tensor:
        """The first rows, updated as a rank does that holds half of a tensor whose halves have equal norms."""
        weight, gradient = whole[0].clone(), whole[1].clone()
        state = State([weight], [gradient], [torch.zeros(40)], [torch.zeros(40)])
        step(state, OPTIONS, StepScalars(0.1, 0.2, 0.05, None, None, 1), lambda norms: norms * 2**0.5)
        return weight

    whole = torch.randn(2, 40, generator=generator)
    torch.testing.assert_close(half_of(whole, blocks_step), half_of(whole, foreach_step), atol=1e-6, rtol=1e-5)


def test_a_nan_gradient_spoils_only_its_own_tensor_where_blocks_share_their_scratch() -> None:
    parameters = [nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    parameters[0].grad, parameters[1].grad = torch.full((3, 2), torch.nan), torch.ones(3, 2)
    MultiTensorAdam(parameters, OPTIONS, matrix_step=blocks_step).step(0.01)
    assert parameters[0].isnan().all()
    assert parameters[1].isfinite().all()


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


def test_without_a_compiler_that_is_said_in_a_line() -> None:
    torch._dynamo.reset()
    with (
        torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}),
        pytest.raises(CompilerMissing, match=r"^[^\n]*No working C[+][+] compiler found[^\n]*$"),
    ):
        FusedStep(torch.device("cpu"))


def shares(ranks: int) -> list[list[int]]:
    """Elements of the matrices, or parts of them, that each rank's slices of BERT-Large's buckets hold, in order."""
    with torch.device("meta"):
        model = Bert(BertShape())
    with mock.patch("torch.distributed.broadcast"):
        buckets = Buckets(bucket_table(list(model.parameters())[::-1], None), True, ranks, 0)
    matrices, _ = matrices_and_vectors(model.parameters())
    found = []
    for buckets.place in range(ranks):
        slices = LogicalSlices(buckets, matrices, model.fused_parameters())
        found.append([weight.numel() for weight in slices.weights])
    return found


GENERATED = """
import json, sys
from contextlib import nullcontext
from unittest import mock
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from bertbench.forecast.kernels.absent_gpu import GPUS
from bertbench.forecast.kernels.codegen import generated
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.state import State, StepScalars
from tests.optim.drawn import lamb

for sizes in json.loads(sys.argv[1]):
    torch._dynamo.reset()
    on_a_gpu = mock.patch.object(torch.compiler, "is_compiling", lambda: True)
    with FakeTensorMode(), generated(GPUS["sm_90"], lambda *_: None, nullcontext) as graphs, on_a_gpu:
        step, lists = FusedStep(torch.device("cpu")), [[torch.empty(size) for size in sizes] for _ in range(4)]
        step(State(*lists), lamb(), StepScalars(0.1, 0.2, 0.05, torch.ones(()), None, 1))
    print(json.dumps([kernel.elements_of_one_block for graph in graphs for kernel in graph.kernels]))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed: the extra `kernels`")
def test_no_kernel_on_a_rank_s_share_has_one_block_for_much() -> None:
    # code depends on the first tensor that the step takes: the least favourable rank's is the smallest
    held = [min(shares(ranks), key=max) for ranks in (8, 16, 64)]
    assert [max(sizes) for sizes in held] == [3_445_248, 1_458_432, 465_024]
    assert any(sizes[0] == 2048 for sizes in shares(8)), "token types of 2 rows come first on one rank"
    command = [sys.executable, "-c", GENERATED, json.dumps([*held, [2048, 4_194_304]])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        blocks_of_one = json.loads(line)
        assert len(blocks_of_one) == 5, "the trial, a sum in two kernels, the update, the subtraction"
        assert max(blocks_of_one) <= budgets()["every_kernel"]["elements_of_one_block"]
