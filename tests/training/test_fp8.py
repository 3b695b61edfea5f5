"""Runs in fp8: scales are the same on all ranks, resume exactly, can be recorded, and are checked at the start."""

from functools import partial
from pathlib import Path

import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.machine.choose_arithmetic import Arithmetic
from bertbench.model.fp8_scaling import HISTORY
from bertbench.model.linear import Products
from bertbench.model.products import Shape
from bertbench.training.small_step import StepResult, take_step
from tests.checkpoint.whole_and_resumed import DROPOUT, EVERY, TAKEN, trained, whole_and_resumed
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.training.replayed_steps import plain_and_replayed
from tests.training.steps import losses_of, whole_trainer
from tests.training.test_self_check import DROPPING, arithmetic, checked, masks_of, sound

SIZES = ("model.hidden_size=16", "model.feed_forward_size=32")
FP8 = (*SIZES, "precision.compute=fp8")
ALONE = "launch.ranks_per_node=1"
STEPS = 5


def state_after(world: World, system: System) -> tuple[list[float], list[list[float]], list[float]]:
    """Losses of the first steps, then the newest first of the history's amaxes, and the scales."""
    with whole_trainer(system, world) as trainer:
        losses = losses_of(world, system, trainer, STEPS)
        state = trainer.state()
        return losses, state["fp8.history"].tolist(), state["fp8.scale"].tolist()


def test_ranks_share_their_scales_and_each_step_enters_the_history(tiny: Tiny) -> None:
    first, second = run_ranks(2, state_after, tiny(*FP8))
    assert first == second
    _, history, scales = first
    assert (len(history), len(scales)) == (HISTORY, 2 * 4 * 3)  # layers, products, operands
    filled = [sum(amax > 0 for amax in amaxes) for amaxes in history]
    assert filled[: STEPS + 1] == [24] * (STEPS + 1), "the pass before the first step, and the steps"
    assert not any(filled[STEPS + 1 :])


def test_its_losses_are_near_those_of_bf16(tiny: Tiny) -> None:
    ((in_fp8, in_bf16),) = run_ranks(1, both_formats, tiny(ALONE, *FP8), tiny(ALONE, *SIZES, "precision.compute=bf16"))
    assert in_fp8 != in_bf16
    # a loss near 5 that falls by a tenth; fp8 rounds by 2^-4
    assert in_fp8 == pytest.approx(in_bf16, abs=0.05)


def both_formats(world: World, *systems: System) -> list[list[float]]:
    answers = []
    for system in systems:
        with whole_trainer(system, world) as trainer:
            answers.append(losses_of(world, system, trainer, STEPS))
    return answers


def test_a_layer_that_is_computed_again_takes_the_same_scales(tiny: Tiny) -> None:
    systems = [tiny(ALONE, *FP8, f"parallel.recompute={value}") for value in ("false", "true")]
    ((kept, again),) = run_ranks(1, both_formats, *systems)
    assert kept == again


def test_resuming_from_a_snapshot_is_exact(tiny: Tiny, tmp_path: Path) -> None:
    choices = ("data.gradient_accumulation_steps=2", "optimizer.sharded=true", "clip.mode=bucket")
    system = tiny(DROPOUT, EVERY, *FP8, *choices)
    for (losses, weights), (losses_on, weights_on) in [
        pair for (pair,) in run_ranks(2, whole_and_resumed, [system], tmp_path)
    ]:
        assert losses_on == losses[TAKEN:]
        assert weights_on == weights


def test_another_number_of_ranks_resumes_with_the_same_scales(tiny: Tiny, tmp_path: Path) -> None:
    on_two, on_one = (tiny(EVERY, *FP8, f"launch.ranks_per_node={ranks}") for ranks in (2, 1))
    ((losses, _), _), *_ = run_ranks(2, whole_and_resumed, [on_two], tmp_path)[0]
    ((losses_on, _),) = run_ranks(1, trained, on_one, tmp_path / "result_0.txt", True)
    # sums in another order move a number to its neighbour in fp8
    assert losses_on == pytest.approx(losses[TAKEN:], abs=0.02)


def test_a_step_s_scales_are_replayed_from_a_tape(tiny: Tiny) -> None:
    common = (*FP8, "data.equal_counts=true")
    for plain, replayed in run_ranks(2, plain_and_replayed, tiny(*common), tiny(*common, "compute.compile=graphs")):
        # sums in another order move a number to its neighbour in fp8
        assert replayed == pytest.approx(plain, rel=0.05)


def test_it_is_checked_at_the_start_and_stays(tiny: Tiny) -> None:
    for found in run_ranks(2, checked, tiny(*FP8), arithmetic(precision="fp8")):
        assert (found.checked, found.refused, found.precision) == (("bf16", "fp8"), (), "fp8")


def wrong(problem: str, system: System, world: World, products: dict[Shape, Products]) -> StepResult:
    """A step that fails in fp8, or computes one gradient twice as large."""
    found = take_step(system, world, products)
    if system.precision.compute == "fp8":
        if problem == "missing":
            raise RuntimeError("no fp8 here")
        name = "optimizer.layers.1.feed_forward_in.weight.first"
        found[name] = 2 * found[name]
    return found


@pytest.mark.parametrize(
    ("problem", "named"), [("missing", "no fp8 here"), ("off", "layers.1.feed_forward_in.weight.first")]
)
def test_if_it_fails_or_is_off_the_run_continues_in_bf16(tiny: Tiny, problem: str, named: str) -> None:
    found: Arithmetic
    (found,) = run_ranks(1, checked, tiny(ALONE, *FP8), arithmetic(precision="fp8"), partial(wrong, problem))
    assert found.precision == "bf16"
    (refusal,) = found.refused
    assert named in refusal


def off_if_recorded(factor: float, system: System, world: World, products: dict[Shape, Products]) -> StepResult:
    """A step in which a recorded one would compute one gradient `factor` times as large."""
    is_recorded = system.compute.compile == "graphs"
    mode = {"compute": system.compute.model_copy(update={"compile": "none"})}
    found = take_step(system.model_copy(update=mode), world, products)
    if is_recorded:
        name = "optimizer.next_sentence.weight.first"
        found[name] = factor * found[name]
    return found


@pytest.mark.parametrize(("factor", "kept"), [(1.01, True), (1.2, False)])
def test_a_last_bit_in_bf16_that_moves_a_number_in_fp8_refuses_no_path(tiny: Tiny, factor: float, kept: bool) -> None:
    wanted = arithmetic(precision="fp8", compile="graphs")
    system = tiny(ALONE, *FP8, "data.equal_counts=true", "compute.compile=graphs")
    (found,) = run_ranks(1, checked, system, wanted, partial(off_if_recorded, factor))
    assert found.checked == ("bf16", "torch.compile", "fp8", "CUDA graphs")
    assert (found.compile == "graphs") == kept
    assert all("next_sentence.weight.first" in refusal for refusal in found.refused)


def test_scales_that_move_between_replays_are_not_taken_for_masks_that_follow_no_seed(tiny: Tiny) -> None:
    assert run_ranks(1, masks_of, tiny(*DROPPING, *FP8), sound) == [""]
