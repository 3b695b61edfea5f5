"""The fused passes against the multi-tensor ones; compiling takes seconds, so one test looks at everything."""

import copy

import pytest
import torch
from torch import nn

from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.foreach import foreach_step, native_adam_step
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.options import AdamOptions
from bertbench.optim.state import Step

OPTIONS = AdamOptions(0.8, 0.95, 1e-6, 0.1)


@pytest.mark.parametrize("trust_ratio", [True, False], ids=["lamb", "adam"])
def test_fused_passes_do_what_the_multi_tensor_ones_do(trust_ratio: bool) -> None:
    try:
        fused_step: Step = FusedStep(torch.device("cpu")) if trust_ratio else native_adam_step
    except CompilerMissing as error:
        pytest.skip(str(error))
    generator = torch.Generator().manual_seed(5)
    ours = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((7, 3), (6, 5), (129, 31), (4,))]
    with torch.no_grad():
        ours[0].zero_()  # no norm: a trust ratio of 1
    theirs = copy.deepcopy(ours)
    optimizers = [
        MultiTensorAdam(parameters, OPTIONS, trust_ratio, {parameters[1]: 3}, step)
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


def test_without_a_compiler_that_is_said_in_a_line() -> None:
    torch._dynamo.reset()
    with (
        torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++"), "fx_graph_cache": False}),
        pytest.raises(CompilerMissing, match=r"^[^\n]*No working C[+][+] compiler found[^\n]*$"),
    ):
        FusedStep(torch.device("cpu"))
