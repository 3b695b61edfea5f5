"""Gradients of a fixed age, on real gloo processes."""

import pytest
import torch
from torch import nn

from bertbench.distributed.world import World
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import ElementSum
from lab.techniques.delayed import Delayed, DelayedSum
from tests.conftest import Tiny
from tests.gradients.reducing import reducer_of
from tests.ranks import run_ranks
from tests.training.steps import trained

DROPOUT = "model.hidden_dropout=0.1"


def test_age_zero_equals_every_step_bit_for_bit_and_its_snapshot_has_no_more(tiny: Tiny) -> None:
    plain, delayed = run_ranks(2, trained, 5, tiny(DROPOUT), (tiny(DROPOUT), Delayed(steps=0)))[0]
    assert delayed == plain
    assert plain.state == {"model", "optimizer"}


def test_age_two_waits_two_steps_and_its_seed_repeats_it(tiny: Tiny) -> None:
    late = tiny(), Delayed(steps=2)
    first, second = run_ranks(2, trained, 6, late, late, tiny())
    once, again, plain = first
    assert once == again == second[0]
    assert once.state == {"model", "optimizer", "delayed"}
    before, untouched = (run_ranks(2, trained, steps, late)[0][0].weights for steps in (2, 0))
    assert before == untouched
    assert once.weights != untouched
    assert once.losses[0] == plain.losses[0]
    assert once.losses != plain.losses


def test_a_step_gets_the_sum_of_the_step_that_many_steps_ago() -> None:
    for gradients in run_ranks(3, sums_of_steps, 2):
        # rank r sends 10 ** r * (step + 1)
        assert gradients == [0, 0, 111, 222, 333]


def sums_of_steps(world: World, delay: int) -> list[float]:
    model = nn.Linear(1, 1, bias=False)
    reducer, answers = reducer_of(model, world.size, way=DelayedSum(ElementSum(Exchange()), delay)), []
    for step in range(5):
        reducer.drop()
        model(torch.full((1, 1), 10.0**world.rank * (step + 1))).sum().backward()
        reducer.finish()
        answers.append(model.weight.grad.item())
    reducer.reset()
    return answers


def test_the_rate_is_divided_by_one_more_than_the_age_and_returns(tiny: Tiny) -> None:
    slow = ("schedule.max_steps=100", "schedule.decay_steps=1000000000")
    rates = Delayed(correction_steps=4).learning_rate(tiny(*slow).learning_rate)
    base = 1e-2
    expected = [base / 2, base / 2**0.75, base / 2**0.5, base / 2**0.25, base, base]
    assert [rates.rate(step) for step in range(6)] == pytest.approx(expected, rel=1e-6)
    by_warm_up = Delayed().learning_rate(tiny(*slow, "schedule.warmup_steps=2").learning_rate)
    assert [by_warm_up.rate(step) for step in (1, 2)] == pytest.approx([base / 2 / 2**0.5, base], rel=1e-6)
