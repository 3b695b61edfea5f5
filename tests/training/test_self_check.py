"""A run's fast paths, checked before its clock starts: sound ones stay, and one that computes wrongly is refused."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from unittest import mock

import pytest
import torch

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.machine.arithmetic import Arithmetic, with_fastest_paths
from bertbench.model.linear import Products
from bertbench.model.products import Shape
from bertbench.training import graph_trainer
from bertbench.training.self_check import StepResult, check_fast_paths, length_of, masks_problem, take_step
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.training.test_graphs import as_on_a_gpu

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


@pytest.mark.parametrize(("name", "factor", "says"), [
    ("optimizer.layers.1.feed_forward_out.bias.first", 0.0, "no compiler"),
    ("next_sentence.weight.first", 0.5, "next_sentence.weight.first differs by 0.5 of its size"),
    ("masked_lm.dense.weight.first", 1.2, "masked_lm.dense.weight.first differs by 0.2 of its size, 0.0625 is allowed"),
    ("loss", float("nan"), "loss differs by nan of its size"),
])  # fmt: skip
def test_a_wrong_path_is_refused_by_all_ranks_in_one_line_and_the_others_stay(
    tiny: Tiny, name: str, factor: float, says: str
) -> None:
    wanted = arithmetic(precision="bf16", compile="graphs")
    system = tiny("compute.compile=graphs", "data.equal_counts=true", "optimizer.name=adam")
    for found in run_ranks(2, checked, system, wanted, partial(wrong, name, factor)):
        assert (found.precision, found.compile) == ("bf16", "none")
        compiled, graphs = found.refused
        assert compiled.startswith("torch.compile refused: ")
        assert says in compiled
        assert compiled.endswith("; using torch's own operations instead")
        assert graphs == "CUDA graphs refused: it needs torch.compile; using steps without graphs instead"


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
    (stale, "dropout drops the same numbers in every replay"),
    (unseeded, "dropout doesn't follow the seed"),
])  # fmt: skip
def test_replays_need_new_masks_that_follow_the_seed(
    record: Callable[[Recorded], Recorded], says: str, tiny: Tiny
) -> None:
    (found,) = run_ranks(1, masks_of, tiny(*DROPPING), record)
    assert found.startswith(says)
    assert bool(found) == bool(says)


def masks_of(world: World, system: System, record: Callable[[Recorded], Recorded]) -> str:
    with as_on_a_gpu():
        return masks_problem(system, world, {}, record)


def test_graphs_with_stale_masks_are_refused(tiny: Tiny) -> None:
    (found,) = run_ranks(1, check_stale, tiny(*DROPPING))
    (refused,) = found.refused
    assert refused.startswith("CUDA graphs refused: dropout drops the same numbers in every replay: the loss of one")
    assert found.compile == "default"


def check_stale(world: World, system: System) -> Arithmetic:
    """Check graphs of a trainer whose recordings are stale; all steps without dropout give the same loss."""
    with as_on_a_gpu(), mock.patch.object(graph_trainer, "_recorder", lambda _: stale):
        wanted = arithmetic(precision="bf16", compile="graphs")
        return check_fast_paths(system, world, wanted, lambda *_: {"loss": torch.ones(())})


def test_apex_without_moments_to_show_is_no_obstacle(tiny: Tiny) -> None:
    (found,) = run_ranks(1, check_beside_apex, tiny("launch.ranks_per_node=1"))
    assert (found.checked, found.refused, found.impl) == (("bf16",), (), "apex")


def check_beside_apex(world: World, system: System) -> Arithmetic:
    """Check bf16 in a run whose optimizer is apex's; torch's stands for it here."""
    optimizer = system.optimizer.model_copy(update={"impl": "apex"})
    with mock.patch.dict(sys.modules, {"apex": mock.Mock(), "apex.optimizers": mock.Mock(FusedAdam=torch.optim.AdamW)}):
        wanted = arithmetic(precision="bf16", impl="apex")
        return check_fast_paths(system.model_copy(update={"optimizer": optimizer}), world, wanted)


def test_a_record_keeps_what_was_checked_and_refused_and_what_a_resumed_run_uses() -> None:
    refused = arithmetic(compile="default", impl="torch", checked=("torch.compile", "CUDA graphs"), refused=("why",))
    assert Arithmetic.of(refused.record(), refused.source) == refused
    assert refused.text().splitlines() == [
        "arithmetic: fp32, torch matmul (set by the system file); fast paths verified: torch.compile, CUDA graphs",
        "warning: why",
    ]


@pytest.mark.parametrize(("name", "mode", "impl"), [
    ("dgxa100_n1", "graphs", "triton"),
    ("dgxa100_n128", "graphs", "triton"),
    ("dgxh200_n1", "graphs", "triton"),
    ("dgxa100_n8_open", "graphs", "triton"),
    ("bert10b_n128", "default", "torch"),  # a split model
    ("cpu_demo", "none", "torch"),
])  # fmt: skip
def test_auto_is_the_fastest_path_that_the_other_settings_allow(name: str, mode: str, impl: str) -> None:
    name, *overrides = name.split()
    system = load_system(name, overrides)
    found = with_fastest_paths(system, arithmetic(precision=system.precision.compute, compile=None, impl=None))
    assert (found.compile, found.impl) == (mode, impl)


def test_a_gpu_is_checked_on_sequences_as_long_as_the_run_s() -> None:
    assert [length_of(load_system(name)) for name in ("dgxh200_n1", "cpu_demo")] == [512, 32]
