"""Where a step's time goes on a GPU, tried on a CPU: the same code at tiny sizes, with stand-ins for NVIDIA's tools."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bertbench.config import load_system
from bertbench.distributed.world import World
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from lab.bench.gpu import rates, steps
from lab.bench.gpu.device_state import clocks_and_power
from lab.bench.gpu.kernel_sums import kernel_sums
from lab.bench.gpu.product import write_system
from lab.bench.gpu.testbed import TINY, Unfit
from tests.conftest import Captured, Program
from tests.machine.driver import A100_40, H100, install
from tests.ranks import run_ranks
from tests.training.as_on_a_gpu import as_on_a_gpu

without_a_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def span(name: str, ts: float, dur: float, cat: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat}


def test_kernels_are_summed_by_name_and_idle_time_is_where_none_of_them_runs() -> None:
    events = [
        span("gemm", 1000, 300), span("copy", 1200, 300, "gpu_memcpy"),  # they overlap: busy from 1000 to 1500
        span("gemm", 1700, 100), span("launch", 0, 9000, "cpu_op"), {"ph": "M", "name": "process_name"},
    ]  # fmt: skip
    sums = kernel_sums(events, "cuda", steps=2)
    assert sums["kernels"] == [
        {"name": "gemm", "launches": 1, "ms": 0.2},
        {"name": "copy", "launches": 0.5, "ms": 0.15},
    ]
    assert (sums["all_kernels_ms"], sums["other_kernels_ms"]) == (0.35, 0)
    assert sums["idle_ms"] == 0.1  # 1500 to 1700, over two steps


NVIDIA_SMI = """echo '    Clocks
        SM                                : 1980 MHz

    GPU Power Readings
        Current Power Limit               : 700.00 W'"""


def test_clocks_and_the_power_limit_are_those_that_nvidia_smi_prints(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("nvidia-smi", NVIDIA_SMI)
    assert clocks_and_power("before")["nvidia_smi"] == [
        "Clocks", "SM : 1980 MHz", "GPU Power Readings", "Current Power Limit : 700.00 W",
    ]  # fmt: skip
    program("nvidia-smi", "exit 9")
    with pytest.raises(Unfit, match=r"nvidia-smi didn't answer: .* exit status 9"):
        clocks_and_power("before")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unfit, match=r"nvidia-smi didn't answer: .*No such file"):
        clocks_and_power("before")


@without_a_gpu
def test_every_kernel_of_a_step_is_timed_the_surest_first(capsys: Captured) -> None:
    rates.rates()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["what"] for row in rows if "not_reached" in row] == ["state", "state"]
    names = check_rates([row for row in rows if "kernel" in row], limited_by_memory=("copy", "GELU", "LAMB"))
    kinds = [name.partition(" ")[0] for name in names]
    assert kinds == ["copy", *["bf16"] * 12, *["attention"] * 4, "GELU", "GELU's", "LAMB"]


@without_a_gpu
def test_every_kernel_in_fp8_is_timed_with_both_sums(capsys: Captured) -> None:
    rates.rates_in_8_bits()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = check_rates(rows, limited_by_memory=("GELU", "cast ", "transposition "))
    products = [name for name in names if name.startswith("fp8 ")]
    assert len(products) == 24
    assert products[:2] == ["fp8 qkv forward, fast sums", "fp8 qkv forward, slow sums"]
    assert len(names) == 24 + 5


def check_rates(rows: list[dict[str, Any]], limited_by_memory: tuple[str, ...]) -> list[str]:
    """Return the names of the kernels; each must have its rate."""
    for row in rows:
        assert row["holds"] and row["ms"] > 0
        assert ("gb_per_s" if row["kernel"].startswith(limited_by_memory) else "tflops") in row
    return [row["kernel"] for row in rows]


@pytest.mark.parametrize(("name", "rows", "columns"), [
    ("forward", 24, 48), ("to input", 24, 16), ("to weight, fp32 written", 48, 16),
])  # fmt: skip
def test_fast_and_slow_sums_are_of_the_same_product(name: str, rows: int, columns: int) -> None:
    sizes = SMALL_RATES
    by_name = {kernel.name: kernel for kernel in rates.kernels_in_8_bits(sizes)}
    found = []
    for sums in ("fast", "slow"):
        torch.manual_seed(3)
        found.append(by_name[f"fp8 qkv {name}, {sums} sums"].build()())
    fast, slow = found
    assert isinstance(fast, torch.Tensor) and isinstance(slow, torch.Tensor)
    assert fast.shape == (rows, columns)
    torch.testing.assert_close(fast, slow)


def test_a_rate_is_operations_and_bytes_over_the_time_of_a_launch() -> None:
    sizes = rates.sizes_here()._replace(device=torch.device("cpu"), repeats=2)
    row = rates.rate_of(rates.Kernel("sleep", lambda: lambda: time.sleep(0.004), flops=6e9, moved=5e6), sizes)
    assert 4 <= row["ms"] < 400
    assert row["tflops"] * row["ms"] == pytest.approx(6, rel=1e-2)  # 6e9 operations in a millisecond are 6 TFLOP/s
    assert row["gb_per_s"] * row["ms"] == pytest.approx(5, rel=1e-2)  # 5 MB in a millisecond are 5 GB/s


SHAPE = BertShape(40, 16, 1, 2, 32, 24)
SMALL_RATES = rates.RateSizes(torch.device("cpu"), SHAPE, 24, [5, 3], 100, 1, 0.0)


def test_operations_and_bytes_are_those_of_the_sizes() -> None:
    by_name = {kernel.name: kernel for kernel in rates.kernels(SMALL_RATES)}
    assert by_name["bf16 qkv to input"].flops == 2 * 24 * 16 * 48
    assert by_name["attention forward, dropout 0.1"].flops == 2 * 2 * (25 + 9) * 16  # scores, and their sums of values
    assert by_name["attention forward and backward, dropout 0.0"].flops == 3 * 2 * 2 * (25 + 9) * 16
    assert by_name["copy"].moved == 200
    assert by_name["GELU"].moved == 2 * 2 * 24 * 32
    assert by_name["GELU's gradient"].moved == 3 * 2 * 24 * 32
    parameters = sum(parameter.numel() for parameter in Bert(SHAPE).parameters())
    assert by_name["LAMB"].moved == 28 * parameters
    in_8_bits = {kernel.name: kernel for kernel in rates.kernels_in_8_bits(SMALL_RATES)}
    assert in_8_bits["fp8 feed_forward_out to weight, fp32 written, slow sums"].flops == 2 * 24 * 32 * 16
    assert in_8_bits["GELU's gradient in fp8"].moved == (2 * 2 + 1 + 1) * 24 * 32
    assert in_8_bits["cast of a weight to fp8"].moved == (4 + 1 + 1) * 16 * 32
    assert in_8_bits["cast of a gradient to fp8"].moved == (2 + 1 + 1) * 24 * 32


def test_a_kernel_is_launched_for_the_time_that_was_asked_for() -> None:
    launches = 0

    def launch() -> None:
        nonlocal launches
        launches += 1
        time.sleep(0.004)

    rates.rate_of(rates.Kernel("sleep", lambda: launch), SMALL_RATES._replace(seconds=0.05))
    assert 4 < launches <= 2 + 13


FP8 = ("precision.compute=fp8",)
SMALL_STEPS = steps.sizes_here()._replace(device="cpu", shape=TINY, samples=6, timed=6, warm_up=1, profiled=2)
UNPROFILED = SMALL_STEPS._replace(profiled=0)


@without_a_gpu
def test_steps_are_timed_and_their_kernels_summed(tmp_path: Path) -> None:
    path = write_system(tmp_path, TINY, SMALL_STEPS.samples, SMALL_STEPS.timed)
    (row,) = run_ranks(1, steps.steps_on_rank, path, steps.AS_IT_COMES, SMALL_STEPS, True)
    assert row["holds"]
    assert (row["choice"], row["steps"], len(row["losses"])) == ("as it comes", 6, 6)
    assert row["losses"][0] == pytest.approx(math.log(512) + math.log(2), abs=0.2)
    assert row["samples_per_s"] == pytest.approx(6000 / row["step_ms"], rel=1e-2)
    assert row["shortest_ms"] <= row["step_ms"] <= row["longest_ms"]
    assert 0 <= row["filler"] < 0.5
    assert row["peak_gb"] > 0
    assert {"aten::addmm", "aten::mm"} & {kernel["name"] for kernel in row["kernels"]}


@without_a_gpu
@pytest.mark.parametrize(("mode", "least_filler", "most_filler"), [("none", 0, 0), ("graphs", 1e-3, 0.5)])
def test_the_share_of_filler_is_that_of_the_sizes_that_are_recorded(
    tmp_path: Path, mode: str, least_filler: float, most_filler: float
) -> None:
    path = write_system(tmp_path, TINY, SMALL_STEPS.samples, SMALL_STEPS.timed)
    settings = (*(name for name in SMALL_STEPS.settings if "compile" not in name), f"compute.compile={mode}")
    variant = steps.Variant(mode, ("precision.compute=fp32",))
    (row,) = run_ranks(1, steps_as_on_a_gpu, path, variant, UNPROFILED._replace(settings=settings))
    assert row["holds"] and row["compile"] == mode
    assert least_filler <= row["filler"] <= most_filler


def steps_as_on_a_gpu(world: World, path: Path, variant: steps.Variant, sizes: steps.StepSizes) -> dict[str, Any]:
    with as_on_a_gpu():
        return steps.steps_on_rank(world, path, variant, sizes, False)


@pytest.mark.parametrize("variant", steps.VARIANTS, ids=lambda variant: variant.name)
def test_every_variant_is_a_system_that_a_gpu_may_run(tmp_path: Path, variant: steps.Variant) -> None:
    path = write_system(tmp_path, TINY, 6, 3)
    assert load_system(str(path), variant.settings).launch.device == "cuda"


@pytest.mark.parametrize(("gib", "samples"), [(139, 96), (79.1, 96), (39.4, 96), (23.6, 32), (14.6, 16)])
def test_a_step_has_as_many_samples_as_the_gpu_s_memory_holds(gib: float, samples: int) -> None:
    assert steps.samples_in(int(gib * 2**30)) == samples


@without_a_gpu
def test_the_variant_in_fp8_takes_steps_whose_losses_are_near_the_firsts(tmp_path: Path) -> None:
    path = write_system(tmp_path, TINY, SMALL_STEPS.samples, SMALL_STEPS.timed)
    in_fp8 = next(variant for variant in steps.VARIANTS if variant.settings == FP8)
    ((first, row),) = run_ranks(1, rows_of, path, steps.AS_IT_COMES, in_fp8)
    assert row["model_arithmetic"].startswith("fp8 in the layers' products")
    assert row["losses"] != first["losses"]
    compared = steps.compared_with(row, first)
    assert compared["holds"]
    assert compared["from_first"] < 0.01, "the loss is still near 6.9, and dropout is 0"


def rows_of(world: World, path: Path, *variants: steps.Variant) -> list[dict[str, Any]]:
    return [steps.steps_on_rank(world, path, variant, UNPROFILED, False) for variant in variants]


def test_a_variant_that_the_gpu_cannot_compute_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_system(tmp_path, TINY, 6, 3)
    in_fp8 = steps.Variant("fp8", FP8)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    install(monkeypatch, H100)
    assert steps.refusal(path, in_fp8, SMALL_STEPS._replace(settings=())) is None
    install(monkeypatch, A100_40)
    reason = steps.refusal(path, in_fp8, SMALL_STEPS._replace(settings=()))
    assert reason is not None
    assert reason.startswith("gpu_check: precision.compute is fp8, but NVIDIA A100")


def test_a_variants_last_losses_are_listed_next_to_the_firsts() -> None:
    first = {"holds": True, "losses": [9.0] * 5 + [4.0] * 20}
    near = {"holds": True, "losses": [1.0] * 5 + [4.2] * 20}
    far = {"holds": True, "losses": [9.0] * 5 + [4.8] * 20}
    assert steps.compared_with(near, first) | {"losses": 0} == {
        "holds": True,
        "losses": 0,
        "from_first": 0.05,
        "allowed": 0.1,
    }
    assert steps.compared_with(far, first)["holds"] is False
    assert steps.compared_with({**near, "losses": [math.nan] * 25}, first)["holds"] is False
