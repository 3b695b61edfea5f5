"""Ranks that train separately between outer steps, local SGD and DiLoCo, on real gloo processes."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.gradients.buckets import ModelWeights
from bertbench.gradients.exchange import Exchange
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.training.technique import EVERY_STEP, Technique
from lab.techniques.diloco import DiLoCo
from lab.techniques.local_sgd import LocalSgd, OuterStep
from tests.conftest import Tiny
from tests.ranks import run_each, run_ranks
from tests.training.steps import loaded, losses_of, whole_trainer

STEPS = 5
UNCLIPPED = "clip.mode=none"


class PlainSgd:
    """w - rate * gradient, whose mean over ranks is the step of the mean gradient."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters

    @torch.no_grad()
    def step(self, rate: float, coefficient: object = None, taken: object = None) -> None:
        for parameter in self._parameters:
            parameter.sub_(parameter.grad, alpha=rate)

    def reset(self) -> None:
        pass


def trained(
    world: World, system: System, technique: Technique, sgd: bool, evaluates: bool = False
) -> tuple[list[float], list[float]]:
    """Losses of some steps, and the weights that an evaluation would see; `evaluates` asks for them on the way too."""
    losses = []
    with whole_trainer(system, world, technique=technique) as trainer:
        if sgd:
            # no system file asks for plain SGD, whose mean over ranks can be computed by hand
            trainer._path = trainer._path._replace(optimizer=PlainSgd(list(trainer.model.parameters())))
        for number, step in enumerate(loaded(world, system, STEPS)):
            losses.append(world.sum(trainer.step(number, step.parts).loss).item())
            if evaluates:
                with trainer.evaluating():
                    pass
        with trainer.evaluating():
            return losses, parameters_to_vector(trainer.model.parameters()).tolist()


def test_plain_sgd_with_an_outer_step_after_every_step_equals_every_step(tiny: Tiny) -> None:
    system = tiny(UNCLIPPED, "optimizer.learning_rate=0.3")
    diloco = DiLoCo(every_steps=1, outer_learning_rate=1.0, outer_momentum=0.0)
    techniques = (EVERY_STEP, LocalSgd(every_steps=1), diloco)
    (losses, weights), *others = run_each(2, trained, *((system, technique, True) for technique in techniques))[0]
    assert losses[-1] < losses[0] - 0.1
    for other_losses, other_weights in others:
        assert other_losses == pytest.approx(losses, abs=2e-5)  # fp32 sums in another order
        assert other_weights == pytest.approx(weights, abs=1e-6)


def test_an_outer_step_after_several_gives_another_run_that_its_seed_repeats_with_and_without_evaluations(
    tiny: Tiny,
) -> None:
    diloco = tiny(), DiLoCo(every_steps=3), False
    first, second = run_each(2, trained, (tiny(), EVERY_STEP, False), diloco, diloco, (*diloco, True))
    plain, once, again, evaluated = first
    assert once == again == evaluated
    assert once[0] != plain[0]
    assert first == second  # all ranks see the same mean, though step 5 is no outer step


def test_an_evaluation_reads_the_mean_of_the_ranks_weights(tiny: Tiny) -> None:
    (own_first, mean_first, back_first), (own_second, mean_second, _) = run_ranks(2, weights_between, tiny())
    assert own_first != own_second
    assert mean_first == mean_second
    assert mean_first == pytest.approx([(a + b) / 2 for a, b in zip(own_first, own_second, strict=True)], abs=1e-7)
    assert back_first == own_first


def weights_between(world: World, system: System) -> tuple[list[float], ...]:
    """Of a rank that trains alone: its weights, those of an evaluation, and its own again, as a snapshot has them."""
    prefix = f"rank.{world.rank}.model."
    with whole_trainer(system, world, technique=LocalSgd(every_steps=9)) as trainer:
        losses_of(world, system, trainer, 2)

        def own() -> list[float]:
            held = (tensor for name, tensor in trainer.state().items() if name.startswith(prefix))
            return parameters_to_vector(held).tolist()

        before = own()
        with trainer.evaluating():
            seen = parameters_to_vector(trainer.model.parameters()).tolist()
        return before, seen, own()


def test_the_outer_step_is_torchs_sgd_with_nesterovs_momentum() -> None:
    ((ours, by_torch),) = run_ranks(1, outer_steps)
    assert ours == [pytest.approx(one, abs=1e-6) for one in by_torch]


def outer_steps(_: World) -> tuple[list[list[float]], list[list[float]]]:
    """One rank, two weights, moved by hand; torch's optimizer gets what they moved by as gradient."""
    weights, expected = nn.ParameterList([torch.tensor([1.0, -2.0])]), torch.tensor([1.0, -2.0], requires_grad=True)
    tensors = LogicalTensors(list(weights), {})
    outer_step = OuterStep(ModelWeights(), tensors, Exchange(), every_steps=2, rate=0.7, momentum=0.9)
    sgd = torch.optim.SGD([expected], lr=0.7, momentum=0.9, nesterov=True)
    ours, by_torch = list[list[float]](), list[list[float]]()
    for step, move in enumerate([(0.5, 0.25), (0.125, -1.0), (-0.5, 0.0), (2.0, 0.5), (0.0, 1.0), (1.0, 1.0)], start=1):
        with torch.no_grad():
            weights[0] += torch.tensor(move)
        if step % 2 == 0:
            expected.grad = expected.detach() - weights[0].detach()
            sgd.step()
        outer_step.after_update(step)
        if step % 2 == 0:
            ours.append(weights[0].tolist())
            by_torch.append(expected.tolist())
    return ours, by_torch
