"""A run checks its fast paths before the clock starts: correct ones are kept, and wrong ones are refused."""

import gc
import importlib
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.gradients.slices import LateWeights, SlicedWeights
from bertbench.machine.choose_arithmetic import Arithmetic, with_fastest_paths
from bertbench.model.linear import Products
from bertbench.model.products import Shape
from bertbench.training import graph_trainer, self_check
from bertbench.training.self_check import check_fast_paths
from bertbench.training.small_step import StepResult, masks_problem, take_step
from tests.conftest import Tiny
from tests.optim import apex_like
from tests.ranks import run_ranks
from tests.training.as_on_a_gpu import as_on_a_gpu

ONEDNN = Products("onednn", "onednn", "onednn")


def arithmetic(**choices: object) -> Arithmetic:
    return replace(Arithmetic("fp32", (), "set by the system file", "none", "torch"), **choices)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [(), ("optimizer.sharded=true",)])
def test_sound_paths_stay_on_every_rank(tiny: Tiny, settings: tuple[str, ...]) -> None:
    wanted = arithmetic(precision="bf16", products=(((32, 16), ONEDNN),))
    for found in run_ranks(2, checked, tiny(*settings), wanted):
        assert found.checked == ("bf16", "oneDNN matmuls")
        assert found.refused == ()
        assert (found.precision, found.products) == ("bf16", wanted.products)


def checked(world: World, system: System, wanted: Arithmetic, *take: Callable[..., StepResult]) -> Arithmetic:
    return check_fast_paths(system, world, wanted, *take)


def test_a_16_bit_residual_is_checked_and_replaced_by_fp32_if_it_computes_wrongly(tiny: Tiny) -> None:
    wanted = arithmetic(precision="bf16", residual="bf16")
    system = tiny("launch.ranks_per_node=1")
    (sound,) = run_ranks(1, checked, system, wanted)
    assert (sound.checked, sound.refused, sound.residual) == (("bf16", "bf16 residual"), (), "bf16")
    (found,) = run_ranks(1, checked, system, wanted, with_wrong_residual)
    assert (found.precision, found.residual) == ("bf16", "fp32")
    assert len(found.refused) == 1


def with_wrong_residual(system: System, world: World, products: dict[Shape, Products]) -> StepResult:
    """A step whose loss is a fifth larger with hidden states in bf16."""
    result = take_step(system, world, products)
    if system.precision.residual == "bf16":
        result["loss"] *= 1.2
    return result


def test_a_check_leaves_no_tensors_of_its_trainers_in_memory(tiny: Tiny) -> None:
    wanted = arithmetic(precision="bf16", compile="default")
    (left,) = run_ranks(1, numbers_left, tiny("launch.ranks_per_node=1", "compute.compile=default"), wanted)
    assert left < 1_000, "a trainer has tens of thousands; a message of bytes may still be on its way between ranks"


def numbers_left(world: World, system: System, wanted: Arithmetic) -> int:
    """How many more numbers are in tensors after a check than before it."""
    gc.collect()
    before = numbers_in_tensors()
    with as_on_a_gpu():
        found = check_fast_paths(system, world, wanted)
    assert found.checked == ("bf16", "torch.compile")
    return numbers_in_tensors() - before


def numbers_in_tensors() -> int:
    return sum(tensor.numel() for tensor in gc.get_objects() if isinstance(tensor, torch.Tensor))


SLICED = ("optimizer.name=lamb", "optimizer.sharded=true", "data.equal_counts=true", "compute.compile=graphs")


def no_gather(weights: LateWeights) -> None:
    """Don't gather."""


def gather_for_readers(weights: LateWeights) -> None:
    """Gather for who reads the weights between steps."""
    weights._gather()
    SlicedWeights.ready(weights)


@pytest.mark.parametrize("broken", [
    {}, {"begin_step": no_gather}, {"begin_step": no_gather, "ready": gather_for_readers},
])  # fmt: skip
def test_graphs_that_read_weights_of_other_ranks_before_they_are_gathered_are_refused(
    tiny: Tiny, broken: dict[str, Callable[..., None]]
) -> None:
    for found in run_ranks(2, check_sliced, tiny(*SLICED), broken):
        assert (found.compile == "graphs") == (not broken)
        assert [refusal.partition(" ")[0] for refusal in found.refused] == ["CUDA"] * bool(broken)
        assert all(" differs by " in refusal for refusal in found.refused)


def check_sliced(world: World, system: System, broken: dict[str, Callable[..., None]]) -> Arithmetic:
    with as_on_a_gpu(), mock.patch.multiple(LateWeights, **broken) if broken else nullcontext():
        return check_fast_paths(system, world, arithmetic(precision="bf16", compile="graphs"))


def test_plain_arithmetic_has_nothing_to_check(tiny: Tiny) -> None:
    (found,) = run_ranks(1, checked, tiny("launch.ranks_per_node=1"), arithmetic(), pytest.fail)
    assert (found.checked, found.compile) == ((), "none")


def wrong(name: str, factor: float, system: System, world: World, products: dict[Shape, Products]) -> StepResult:
    """A step whose compiled code computes the tensors of that name `factor` times as large, or doesn't start."""
    compiled = system.compute.compile in ("default", "graphs")
    if compiled and not factor:
        raise ConfigError("a line before\nno compiler")
    plain = system.model_copy(update={"compute": system.compute.model_copy(update={"compile": "none"})})
    found = take_step(plain, world, products)
    scale = factor if compiled and world.rank == world.size - 1 else 1.0
    return {key: tensor * scale if name in key else tensor for key, tensor in found.items()}


@pytest.mark.parametrize(("name", "factor", "named"), [
    ("optimizer.layers.1.feed_forward_out.bias.first", 0.0, "no compiler"),
    ("masked_lm.dense.weight.first", 1.2, "masked_lm.dense.weight.first"),
    ("loss", float("nan"), "loss"),
])  # fmt: skip
def test_a_wrong_path_is_refused_by_all_ranks_and_the_others_are_kept(
    tiny: Tiny, name: str, factor: float, named: str
) -> None:
    wanted = arithmetic(precision="bf16", compile="graphs")
    system = tiny("compute.compile=graphs", "data.equal_counts=true", "optimizer.name=adam")
    for found in run_ranks(2, checked, system, wanted, partial(wrong, name, factor)):
        assert (found.precision, found.compile) == ("bf16", "none")
        compiled, graphs = found.refused
        assert compiled.startswith("torch.compile refused: ")
        assert named in compiled
        assert graphs.startswith("CUDA graphs refused: needs torch.compile")


def failing(kind: str, system: System, world: World, products: dict[Shape, Products]) -> StepResult:
    """A step that bf16 ends with an error of a kind."""
    if system.precision.compute == "bf16":
        errors = {"compiler": subprocess.CalledProcessError(1, ["cc"]), "import": ImportError("no libtriton")}
        if kind == "triton":
            raise importlib.import_module("triton").TritonError("at 3:1:\nno such instruction")
        raise errors.get(kind, KeyError("a bug"))
    return take_step(system, world, products)


@pytest.mark.parametrize(("kind", "says"), [
    ("compiler", "Command '['cc']' returned non-zero exit status 1."),
    ("import", "no libtriton"),
    ("triton", "no such instruction"),
])  # fmt: skip
def test_a_path_whose_kernels_do_not_compile_is_refused(tiny: Tiny, kind: str, says: str) -> None:
    if kind == "triton":
        pytest.importorskip("triton", reason="Triton is not installed (bertbench[kernels] brings it)")
    wanted = arithmetic(precision="bf16")
    (found,) = run_ranks(1, checked, tiny("launch.ranks_per_node=1"), wanted, partial(failing, kind))
    (refusal,) = found.refused
    assert says in refusal
    assert found.precision == "fp32"


def test_a_bug_in_a_path_is_not_refused_but_raised(tiny: Tiny) -> None:
    with pytest.raises(AssertionError, match="a bug"):
        run_ranks(
            1, checked, tiny("launch.ranks_per_node=1"), arithmetic(precision="bf16"), partial(failing, "unknown")
        )


Recorded = Callable[[], torch.Tensor]


def sound(work: Recorded) -> Recorded:
    return work


def stale(work: Recorded) -> Recorded:
    """A recording whose seed stays that of the moment it was made."""
    state = torch.get_rng_state()

    def replay() -> torch.Tensor:
        torch.set_rng_state(state)
        return work()

    return replay


def unseeded(work: Recorded) -> Recorded:
    """A recording whose masks no seed decides."""

    def replay() -> torch.Tensor:
        torch.seed()
        return work()

    return replay


DROPPING = ("launch.ranks_per_node=1", "compute.compile=graphs", "data.equal_counts=true", "model.hidden_dropout=0.1")


@pytest.mark.parametrize(("record", "says"), [
    (sound, ""),
    (stale, "replay"),
    (unseeded, "seed"),
])  # fmt: skip
def test_replays_need_new_masks_that_follow_the_seed(
    record: Callable[[Recorded], Recorded], says: str, tiny: Tiny
) -> None:
    (found,) = run_ranks(1, masks_of, tiny(*DROPPING), record)
    assert says in found
    assert bool(found) == bool(says)


def masks_of(world: World, system: System, record: Callable[[Recorded], Recorded]) -> str:
    with as_on_a_gpu():
        return masks_problem(system, world, {}, record)


def test_graphs_with_stale_masks_are_refused(tiny: Tiny) -> None:
    (found,) = run_ranks(1, check_stale, tiny(*DROPPING))
    (refused,) = found.refused
    assert refused.startswith("CUDA graphs refused: dropout")
    assert found.compile == "default"


def check_stale(world: World, system: System) -> Arithmetic:
    """Check graphs of a trainer whose recordings are stale; all steps without dropout give the same loss."""
    # the check builds its trainer itself: only the trainer's own recorder can be stale
    with as_on_a_gpu(), mock.patch.object(graph_trainer, "recorder", lambda _: stale):
        wanted = arithmetic(precision="bf16", compile="graphs")
        return check_fast_paths(system, world, wanted, lambda *_: {"loss": torch.ones(())})


def test_apexs_optimizer_is_checked_against_torchs(tiny: Tiny) -> None:
    system = tiny("launch.ranks_per_node=1", "optimizer.name=lamb")
    (found,) = run_ranks(1, check_beside_apex, system, 1.0)
    assert (found.checked, found.refused, found.impl) == (("bf16", "apex's optimizer"), (), "apex")
    (found,) = run_ranks(1, check_beside_apex, system, 1.3)
    assert (len(found.refused), found.impl) == (1, "torch")


def check_beside_apex(world: World, system: System, rate_factor: float) -> Arithmetic:
    """Check a run with a stand-in for apex's optimizer whose rate is wrong by a factor."""
    optimizer = system.optimizer.model_copy(update={"impl": "apex"})
    original = apex_like.FusedLAMB.step

    def step(apex: apex_like.FusedLAMB, closure: Any = None) -> None:
        for group in apex.param_groups:
            group["lr"] *= rate_factor
        original(apex, closure)

    with apex_like.apex_installed(), mock.patch.object(apex_like.FusedLAMB, "step", step):
        wanted = arithmetic(precision="bf16", impl="apex")
        return check_fast_paths(system.model_copy(update={"optimizer": optimizer}), world, wanted)


@pytest.mark.parametrize(("gradient", "is_compared"), [(1e-5, False), (1e-3, True)])
def test_an_update_is_compared_unless_its_gradient_is_noise(gradient: float, is_compared: bool) -> None:
    expected = {
        "loss": torch.ones(()),
        "optimizer.query.first": torch.ones(7), "optimizer.key.first": torch.full((7,), gradient),
        "model.query": torch.full((7,), -0.1), "model.key": torch.full((7,), -0.1),
    }  # fmt: skip
    result = {**expected, "model.key": -expected["model.key"]}
    found = self_check.difference(result, expected, 2.0, updates=True)
    assert ("model.key" in found) == bool(found) == is_compared


def test_a_record_keeps_what_was_checked_and_refused_and_what_a_resumed_run_uses() -> None:
    refused = arithmetic(compile="default", impl="torch", checked=("torch.compile", "CUDA graphs"), refused=("why",))
    assert Arithmetic.of(refused.record(), refused.source) == refused


@pytest.mark.parametrize(("name", "mode", "impl", "residual"), [
    ("dgxa100_n1", "graphs", "triton", "bf16"),
    ("dgxa100_n1 precision.compute=fp16", "default", "triton", "fp32"),
    ("dgxa100_n8_open", "graphs", "triton", "bf16"),
    ("bert10b_n128", "default", "torch", "fp32"),  # a split model
    ("cpu_demo precision.residual=auto", "none", "torch", "fp32"),
])  # fmt: skip
def test_auto_is_the_fastest_path_that_the_other_settings_allow(name: str, mode: str, impl: str, residual: str) -> None:
    name, *overrides = name.split()
    system = load_system(name, overrides)
    found = with_fastest_paths(system, arithmetic(precision=system.precision.compute, compile=None, impl=None))
    assert (found.compile, found.impl, found.residual) == (mode, impl, residual)
    assert found.applied(system).precision.residual == residual
