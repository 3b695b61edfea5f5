"""The Triton kernels: run by Triton's interpreter on a CPU, and compiled for GPUs without one."""

import importlib
import math
import multiprocessing
import re
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from bertbench.config.optimizer import OptimizerSettings
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets
from bertbench.gradients.clip import gradient_norm
from bertbench.gradients.exchange import ReduceScatter
from bertbench.gradients.slices import LogicalSlices, SlicedWeights, norms_over_slices
from bertbench.optim.adam import MultiTensorAdam
from lab.kernels.machine_code import Resources, usage
from tests import ranks
from tests.optim.drawn import adam, draw_gradients, lamb, matrices
from tests.watching import Watching

pytestmark = pytest.mark.slow
triton = pytest.importorskip("triton", reason="Triton is not installed (bertbench[kernels] brings it)")

BOTH = lamb(beta2=0.99), adam(beta2=0.99)
# elements: two chunks of 8,192 that end within a load of 16 bytes, one that ends with a chunk, and small ones
SHAPES = ((67, 127), (128, 64), (23, 3), (5, 4), (97,), (8,))
FLOAT32_ROUNDING = 2e-6  # relative to a tensor's largest weight, after a few steps


def kernels() -> Any:
    return importlib.import_module("bertbench.optim.triton_step")


def step_of() -> Any:
    return kernels().TritonStep()


def parted(one: list[nn.Parameter], other: list[nn.Parameter]) -> float:
    """Largest difference, relative to its tensor's largest weight."""
    with torch.no_grad():
        return max(((a - b).abs().max() / a.abs().max()).item() for a, b in zip(one, other, strict=True))


def steps_beside_plain_ones(options: OptimizerSettings, scales_loss: bool) -> list[float]:
    """How far Triton's weights are from the plain optimizer's, after each of four steps."""
    plain, ours = matrices(*SHAPES), matrices(*SHAPES)
    optimizers = (
        MultiTensorAdam(plain, options),
        MultiTensorAdam(ours, options, None, step_of(), step_of()),
    )
    found = []
    for number in range(4):
        skipped = scales_loss and number == 2
        for optimizer, its in zip(optimizers, (plain, ours), strict=True):
            draw_gradients(its, number, scale=7.0)
            if skipped and its[0].grad is not None:
                its[0].grad[0, 0] = math.nan
            if scales_loss:
                taken = torch.tensor(0.0 if skipped else 1.0)
                optimizer.step(torch.tensor(0.03, dtype=torch.float64), torch.tensor(0.25) * taken, taken)
            else:
                optimizer.step(0.03, torch.tensor(0.25) if number else None)
        found.append(parted(plain, ours))
    return found


def test_weights_equal_the_plain_optimizers_except_for_rounding(alone: dict[str, Any]) -> None:
    assert len(alone["beside plain ones"]) == 4
    for case, found in alone["beside plain ones"].items():
        assert max(found) < FLOAT32_ROUNDING, case


def zero_norms() -> list[list[float]]:
    """Weights after a step of LAMB where weights, and where updates, are zero."""
    still, grows = nn.Parameter(torch.ones(1, 4)), nn.Parameter(torch.zeros(1, 4))
    still.grad, grows.grad = torch.zeros(1, 4), torch.tensor([[0.3, -0.3, 0.3, -0.3]])
    options = lamb(epsilon=1e-12, weight_decay=0.0)
    MultiTensorAdam([still, grows], options, None, step_of()).step(0.1)
    return [still.view(-1).tolist(), grows.view(-1).tolist()]


def test_the_trust_ratio_is_one_where_a_norm_is_zero(alone: dict[str, Any]) -> None:
    still, grows = alone["zero norms"]
    assert still == [1.0] * 4
    assert grows == pytest.approx([-0.1, 0.1, -0.1, 0.1])


def copies_of_weights(options: OptimizerSettings, dtype: torch.dtype) -> tuple[int, bool]:
    """Elements of copies that aren't their rounded weights; whether weights are those of a step without copies."""
    ours, without = matrices(*SHAPES), matrices(*SHAPES)
    copied = {ours[at]: torch.zeros(SHAPES[at], dtype=dtype) for at in (0, 1, 3)}
    fused: dict[torch.Tensor, int] = {ours[1]: 2, without[1]: 2}
    step = step_of()
    optimizers = (
        MultiTensorAdam(ours, options, fused, step, step, rounded=copied),
        MultiTensorAdam(without, options, fused, step_of(), step_of()),
    )
    for number in range(2):
        for optimizer, its in zip(optimizers, (ours, without), strict=True):
            draw_gradients(its, number)
            optimizer.step(0.03)
    wrong = sum(int((by_interpreter_in(dtype, weight.detach()) != copy).sum()) for weight, copy in copied.items())
    same = all(torch.equal(one, other) for one, other in zip(ours, without, strict=True))
    return wrong, same


def by_interpreter_in(dtype: torch.dtype, weight: torch.Tensor) -> torch.Tensor:
    """Return the numbers in 16 bits, truncated to bf16 as in Triton's interpreter; a GPU rounds (see below)."""
    if dtype == torch.bfloat16:
        weight = (weight.view(torch.int32) >> 16 << 16).view(torch.float32)
    return weight.to(dtype)


def test_copies_are_the_new_weights_rounded_and_change_no_weight(alone: dict[str, Any]) -> None:
    assert len(alone["copies"]) == 4
    for case, found in alone["copies"].items():
        assert found == (0, True), case


def with_summed_gradients(options: OptimizerSettings) -> tuple[bool, bool]:
    """Whether norms, and weights after two steps, are those of the same gradients in float32."""
    ours, plain = matrices(*SHAPES), matrices(*SHAPES)
    summed = {weight: torch.empty_like(weight, dtype=torch.bfloat16, requires_grad=False) for weight in ours}
    step, plain_step = step_of(), step_of()
    optimizers = (
        MultiTensorAdam(ours, options, None, step, step, summed=summed),
        MultiTensorAdam(plain, options, None, plain_step, plain_step),
    )
    norms_of = kernels().TritonNorm(ours, summed), kernels().TritonNorm(plain)
    same_norms = True
    for number in range(2):
        draw_gradients(plain, number)
        for weight, other in zip(ours, plain, strict=True):
            summed[weight].copy_(other.grad)
            other.grad = summed[weight].float()
            weight.grad = torch.full_like(weight, math.nan)  # what the updates overwrite
        found, expected = (norm() for norm in norms_of)
        same_norms = same_norms and torch.equal(found, expected)
        for optimizer in optimizers:
            optimizer.step(0.03, torch.tensor(0.5))
    return same_norms, all(torch.equal(one, other) for one, other in zip(ours, plain, strict=True))


def test_gradients_summed_in_16_bits_are_read_as_they_are(alone: dict[str, Any]) -> None:
    assert alone["summed"] == dict.fromkeys(BOTH, (True, True))


def slices_beside_plain_ones(world: World, options: OptimizerSettings) -> float:
    """How far two ranks' slices are from the plain optimizer, after three steps."""
    plain, sliced = matrices(*SHAPES), matrices(*SHAPES)
    buckets = Buckets([sliced[:2], sliced[2:]], sliced=True, slices=world.size, place=world.rank)
    step, tensor_factory = step_of(), partial(LogicalSlices, buckets)
    norms = norms_over_slices(buckets, {}) if options.trust_ratio else None
    optimizer = MultiTensorAdam(sliced, options, {}, step, step, tensor_factory, norms)
    weights = SlicedWeights(nn.Module(), buckets, ReduceScatter())
    whole = MultiTensorAdam(plain, options)
    for number in range(3):
        draw_gradients(plain, number)
        draw_gradients(sliced, number)
        for bucket in buckets.all:
            bucket.take_in()
        whole.step(0.03, torch.tensor(0.5))
        optimizer.step(0.03, torch.tensor(0.5))
        weights.publish()
        weights.ready()
    return parted(plain, sliced)


def test_slices_on_two_ranks_are_updated_equally(interpreted: list[dict[str, Any]]) -> None:
    for found in interpreted:
        assert max(found["slices"]) < FLOAT32_ROUNDING


class _Counted:
    """A kernel whose launches are counted."""

    def __init__(self, kernel: Any, launched: list[str]) -> None:
        self._kernel, self._launched = kernel, launched

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self._launched.append(self._kernel.fn.__name__)

        def run(*arguments: Any, **constants: Any) -> None:
            with _disable_current_modes():  # what the interpreter does itself is no launch
                self._kernel[grid](*arguments, **constants)

        return run


def launched_by_torch(function: Any) -> list[str]:
    """The name of torch's own launch; none of what only allocates or makes views."""
    name = function.__name__.split(".")[0]
    return [] if function.is_view or name in ("empty", "empty_like", "new_empty") else [name]


def launches_and_bytes(count: int) -> tuple[list[str], float]:
    """Launches of a step of LAMB with its gradient's norm, and bytes that travel for each parameter."""
    from triton.runtime import interpreter  # noqa: PLC0415 - only where it interprets

    module = kernels()
    held = [nn.Parameter(torch.ones(shape)) for shape in ((64, 129), (7,)) for _ in range(count)]
    step = step_of()
    optimizer = MultiTensorAdam(held, BOTH[0], None, step, step)
    norm = module.TritonNorm(held)
    draw_gradients(held, 0)
    norm()
    optimizer.step(0.1)  # makes the plan
    launched: list[str] = []
    moved = 0
    builder = interpreter.InterpreterBuilder
    with pytest.MonkeyPatch.context() as patch:
        for name in ("update_chunks", "apply_chunks", "square_chunks", "norm_tensors"):
            patch.setattr(module, name, _Counted(getattr(module, name), launched))

        def counting(method: Any, mask_at: int, self: Any, *arguments: Any) -> Any:
            nonlocal moved
            moved += int(arguments[mask_at].data.sum()) * 4
            return method(self, *arguments)

        for name, mask_at in (("create_masked_load", 1), ("create_masked_store", 2)):
            method = getattr(builder, name)
            patch.setattr(builder, name, lambda self, *a, m=method, at=mask_at: counting(m, at, self, *a))
        with Watching(lambda function, _: launched.extend(launched_by_torch(function))):
            coefficient = (1.0 / (norm() + 1e-6)).clamp(max=1)
            optimizer.step(0.1, coefficient)
    return launched, moved / sum(parameter.numel() for parameter in held)


def test_a_step_takes_at_most_20_launches_and_44_bytes_per_parameter_whatever_the_tensors(
    alone: dict[str, Any],
) -> None:
    (few, few_bytes), (many, _) = alone["launches and bytes"]
    assert few == many
    assert 10 < len(few) <= 20
    # norm 4, update 28, apply 12, and what little the sums of chunks take
    assert 44 <= few_bytes < 44.05


def norms() -> list[tuple[float, float]]:
    found = []
    its = matrices(*SHAPES)
    ours = kernels().TritonNorm(its)
    for number in range(2):
        draw_gradients(its, number, scale=3.0)
        found.append((ours().item(), gradient_norm(its).item()))
    assert its[0].grad is not None
    its[0].grad[3, 3] = math.inf
    return [*found, (ours().item(), math.inf)]


def test_the_norm_equals_torchs_and_is_infinite_if_an_element_is(alone: dict[str, Any]) -> None:
    for ours, expected in alone["norms"]:
        assert ours == pytest.approx(expected, rel=1e-6)


def on_ranks(world: World) -> dict[str, Any]:
    slices = [slices_beside_plain_ones(world, options) for options in BOTH]
    if not world.leads:
        return {"slices": slices}
    cases = [(options, scales) for options in BOTH for scales in (False, True)]
    return {
        "slices": slices,
        "beside plain ones": {case: steps_beside_plain_ones(*case) for case in cases},
        "zero norms": zero_norms(),
        "launches and bytes": [launches_and_bytes(count) for count in (1, 4)],
        "norms": norms(),
        "summed": {options: with_summed_gradients(options) for options in BOTH},
        "copies": {case: copies_of_weights(*case) for case in product(BOTH, (torch.bfloat16, torch.float16))},
    }


def by_interpreter(count: int, function: Any, *arguments: Any) -> list[Any]:
    """Return each rank's result, in new processes, because Triton decides at import whether it interprets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        patch.setattr(ranks, "CONTEXT", multiprocessing.get_context("spawn"))
        return ranks.run_ranks(count, function, *arguments)


@pytest.fixture(scope="module")
def interpreted() -> list[dict[str, Any]]:
    """The results of two processes."""
    return by_interpreter(2, on_ranks)


@pytest.fixture
def alone(interpreted: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of the first process alone."""
    return interpreted[0]


_TABLES = {"table": "*i64", "chunk_tensors": "*i64", "chunk_numbers": "*i64", "first_chunk": "i32", "tensors": "i32"}
_SIGNATURES = {
    "update_chunks": {
        **_TABLES, "chunks": "i32",
        **dict.fromkeys(("rate", "correction1", "correction2", "coefficient", "taken"), "*fp32"),
        **dict.fromkeys(("share1", "keep2", "share2", "epsilon", "decay"), "fp32"), "squares": "*fp32",
    },
    "apply_chunks": {**_TABLES, "rate": "*fp32", "norms": "*fp32"},
    "square_chunks": {**_TABLES, "squares": "*fp32"},
}  # fmt: skip


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("name", _SIGNATURES)
def test_machine_code_has_no_spills_and_loads_16_bytes_at_a_time(
    name: str, halves: bool, arch: int, tmp_path: Path
) -> None:
    module = kernels()
    constants: dict[str, Any] = {"ALIGNED": True, "CHUNK": module.CHUNK, "BLOCK": module.BLOCK}
    half = triton.language.bfloat16 if halves else None
    match name:
        case "update_chunks":
            constants |= {"LAMB": True, "ROUNDED": half, "SUMMED": half}
        case "apply_chunks":
            constants |= {"ROUNDED": half}
        case "square_chunks":
            constants |= {"FORMAT": half or triton.language.float32}
    ptx, used = machine_code(getattr(module, name), _SIGNATURES[name], constants, arch, tmp_path)
    loads = re.findall(r"ld\.global\S*", ptx)
    # a thread's 8 elements are 2 loads of 16 bytes, or of 8 bytes in bf16
    in_half = 2 if halves and name != "apply_chunks" else 0
    assert sum(".v2." in load for load in loads) >= in_half
    wide = {"update_chunks": 8, "apply_chunks": 4, "square_chunks": 2}[name] - in_half
    assert sum(".v4." in load for load in loads) >= wide
    if halves and name == "apply_chunks":
        assert "cvt.rn.bf16" in ptx, "rounds to the nearest"
    assert used.spill_bytes == 0
    assert used.registers <= 96, "5 blocks of 128 threads on a multiprocessor"


def machine_code(
    kernel: Any,
    signature: dict[str, str],
    constants: dict[str, Any],
    arch: int,
    folder: Path,
    divisible: Sequence[int] = (),
    warps: int = 4,
) -> tuple[str, Resources]:
    """Return a kernel's PTX, and what its machine code takes; arguments at `divisible` are multiples of 16."""
    source = triton.compiler.ASTSource(
        kernel,
        {**signature, **dict.fromkeys(constants, "constexpr")},
        constexprs={(kernel.arg_names.index(constant),): value for constant, value in constants.items()},
        attrs={(place,): [["tt.divisibility", 16]] for place in divisible},
    )
    target = triton.backends.compiler.GPUTarget("cuda", arch, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": warps})
    return compiled.asm["ptx"], usage(compiled.asm["cubin"], folder)
