"""torch's fused Adam, whole and on blocks for LAMB, against the multi-tensor operations."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import bertbench.optim.adam
from bertbench.config.optimizer import OptimizerName
from bertbench.optim.adam import MultiTensorAdam, blocks_step, foreach_step, native_adam_step
from bertbench.optim.interface import StepFunction, StepScalars, StepTensors
from tests.optim.drawn import draw_gradients, lamb, matrices

OPTIONS = lamb(beta1=0.8, beta2=0.95, weight_decay=0.1)


@pytest.mark.parametrize(("name", "fused_step"), [("lamb", blocks_step), ("adam", native_adam_step)])
def test_fused_passes_give_the_results_of_the_multi_tensor_ones(
    name: OptimizerName, fused_step: StepFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the largest tensor has a rest, the smallest none
    monkeypatch.setattr(bertbench.optim.adam, "BLOCK_PER_THREAD", 10)
    options = OPTIONS.model_copy(update={"name": name})
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
