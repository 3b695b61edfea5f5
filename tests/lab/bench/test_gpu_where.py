"""Where a step's time goes on a GPU, tried on a CPU: the same code at tiny sizes, with stand-ins for NVIDIA's tools."""

import ctypes
import json
import math
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertbench.config import load_system
from bertbench.distributed.world import World
from bertbench.machine.choose_arithmetic import Arithmetic, with_fastest_paths
from lab.bench.gpu import rates, steps, training
from lab.bench.gpu.device_state import clocks_and_power, device_descriptor
from lab.bench.gpu.kernel_sums import kernel_sums
from lab.bench.gpu.product import write_system
from lab.bench.gpu.testbed import TINY, Unfit, testbed
from tests.conftest import Captured, Program
from tests.lab.bench.test_gpu_check import said_by
from tests.machine.driver import A100_40, H100, install
from tests.ranks import run_ranks
from tests.training.test_graphs import as_on_a_gpu

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


CUDNN = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static int type, device = -1, finished;
int cudnnBackendCreateDescriptor(int wanted, void **descriptor) {
  type = wanted;
  *descriptor = &type;
  return 0;
}
int cudnnBackendSetAttribute(void *descriptor, int name, int kind, int64_t count, const void *value) {
  if (descriptor != &type || name != 2700 || kind != 23 || count != 1) return 3000;
  device = *(const int32_t *)value;
  return 0;
}
int cudnnBackendFinalize(void *descriptor) {
  finished = descriptor == &type && type == 38 && device < 8;
  return finished ? 0 : 2000;
}
int cudnnBackendGetAttribute(void *descriptor, int name, int kind, int64_t room, int64_t *count, void *text) {
  char made[64];
  if (!finished || name != 2702 || kind != 24) return 3000;
  *count = snprintf(made, sizeof made, "{\\"device\\": %d, \\"sms\\": 132}", device);
  if (text) memcpy(text, made, room < *count ? room : *count);
  return 0;
}
int cudnnBackendDestroyDescriptor(void *descriptor) { return descriptor != &type; }
"""
"""The five functions of cuDNN's graph library, with the numbers of cuDNN 9."""


def test_cudnns_descriptor_of_a_device_is_read_unchanged(tmp_path: Path) -> None:
    (tmp_path / "cudnn.c").write_text(CUDNN)
    library = tmp_path / "libcudnn.so.9"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "cudnn.c"], check=True)
    cudnn = ctypes.CDLL(str(library))
    assert json.loads(device_descriptor(cudnn, 3)) == {"device": 3, "sms": 132}
    with pytest.raises(RuntimeError, match="could not finalize, status 2000"):
        device_descriptor(cudnn, 8)


@without_a_gpu
def test_every_kernel_of_a_step_is_timed(capsys: Captured) -> None:
    rates.rates()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kernels = {row["kernel"]: row for row in rows if "kernel" in row}
    assert all(row["holds"] and row["ms"] > 0 for row in kernels.values())
    assert [row["what"] for row in rows if "not_reached" in row] == ["state", "cudnn", "state"]
    assert len([name for name in kernels if name.startswith("bf16 ") and "rows of" not in name]) == 12
    assert len([name for name in kernels if name.startswith("fp8 ")]) == 12
    assert {"bf16 qkv forward, rows of 40", "bf16 qkv to weight, rows of 96", "copy"} < kernels.keys()
    passes = ("copy", "GELU", "cast ", "transposition ")
    limited_by_memory = {name for name in kernels if name.startswith(passes)}
    assert len(limited_by_memory) == 7
    assert all(("gb_per_s" if name in limited_by_memory else "tflops") in kernels[name] for name in kernels)


def test_a_rate_is_operations_and_bytes_over_the_time_of_a_launch() -> None:
    sizes = rates.sizes_here()._replace(device=torch.device("cpu"), repeats=2)
    row = rates.rate_of(rates.Kernel("sleep", lambda: lambda: time.sleep(0.004), flops=6e9, moved=5e6), sizes)
    assert 4 <= row["ms"] < 400
    assert row["tflops"] * row["ms"] == pytest.approx(6, rel=1e-2)  # 6e9 operations in a millisecond are 6 TFLOP/s
    assert row["gb_per_s"] * row["ms"] == pytest.approx(5, rel=1e-2)  # 5 MB in a millisecond are 5 GB/s


def test_operations_and_bytes_are_those_of_the_sizes() -> None:
    sizes = rates.RateSizes(torch.device("cpu"), 7, 16, 24, 2, [5, 3], 100, 1, 0.0)
    by_name = {kernel.name: kernel for kernel in rates.kernels(sizes)}
    assert by_name["bf16 qkv to input"].flops == 2 * 7 * 16 * 48
    assert by_name["fp8 feed_forward_out to weight"].flops == 2 * 7 * 24 * 16
    assert by_name["bf16 qkv to weight, rows of 24"].flops == 2 * 7 * 24 * 48
    assert by_name["attention forward, dropout 0.1"].flops == 2 * 2 * (25 + 9) * 16  # scores, and their sums of values
    assert by_name["attention forward and backward, dropout 0.0"].flops == 3 * 2 * 2 * (25 + 9) * 16
    assert by_name["copy"].moved == 200
    assert by_name["GELU's gradient"].moved == 3 * 2 * 7 * 24
    assert by_name["GELU's gradient in fp8"].moved == (2 * 2 + 1 + 1) * 7 * 24
    assert by_name["cast of a weight to fp8"].moved == (4 + 1 + 1) * 16 * 24
    assert by_name["cast of a gradient to fp8"].moved == (2 + 1 + 1) * 7 * 24


FP8 = ("precision.compute=fp8",)
SMALL_STEPS = steps.sizes_here()._replace(device="cpu", shape=TINY, samples=6, timed=6, warm_up=1, profiled=2)


@without_a_gpu
def test_steps_are_timed_and_their_kernels_summed(tmp_path: Path) -> None:
    path = write_system(tmp_path, TINY, SMALL_STEPS.samples, SMALL_STEPS.timed)
    (row,) = run_ranks(1, steps.steps_on_rank, path, steps.AS_IT_COMES, SMALL_STEPS, 6, 2, True)
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
    variant = steps.Variant(mode, (f"compute.compile={mode}", "precision.compute=fp32"))
    (row,) = run_ranks(1, steps_as_on_a_gpu, path, variant)
    assert row["holds"] and row["compile"] == mode
    assert least_filler <= row["filler"] <= most_filler


def steps_as_on_a_gpu(world: World, path: Path, variant: steps.Variant) -> dict[str, Any]:
    with as_on_a_gpu():
        return steps.steps_on_rank(world, path, variant, SMALL_STEPS, 5, 0, False)


@pytest.mark.parametrize("variant", [*steps.RESIDUALS, *steps.VARIANTS], ids=lambda variant: variant.name)
def test_every_variant_is_a_system_that_a_gpu_may_run(tmp_path: Path, variant: steps.Variant) -> None:
    path = write_system(tmp_path, TINY, 6, 3)
    assert load_system(str(path), variant.settings).launch.device == "cuda"


def test_the_steps_of_a_gpu_are_compared_with_the_other_residual(tmp_path: Path) -> None:
    path = write_system(tmp_path, TINY, 6, 3)
    residuals = []
    for variant in steps.RESIDUALS:
        system = load_system(str(path), variant.settings)
        residuals.append(with_fastest_paths(system, Arithmetic("bf16", (), "measured")).residual)
    assert residuals == ["bf16", "fp32"]


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
    return [steps.steps_on_rank(world, path, variant, SMALL_STEPS, 6, 0, False) for variant in variants]


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


def test_fp8_and_what_it_is_compared_with_take_200_steps_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    sizes = steps.sizes_here()
    assert [variant.steps(sizes) for variant in steps.VARIANTS] == [200, 200, 60, 60, 60, 60]
    assert steps.VARIANTS[1].settings == FP8


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
    longer = {"holds": True, "losses": [*first["losses"], *[1.0] * 30]}
    assert steps.compared_with(near, longer) == steps.compared_with(near, first)
    assert steps.compared_with(far, first)["holds"] is False
    assert steps.compared_with({**near, "losses": [math.nan] * 25}, first)["holds"] is False
    assert not steps.Variant("more", ("data.local_batch=192",)).has_same_batch


def test_the_masks_of_a_recorded_step_are_checked_as_a_run_checks_them() -> None:
    here = testbed()._replace(device="cpu", shape=replace(TINY, hidden_dropout=0.1))
    ((row,),) = run_ranks(1, dropped, here)
    assert row == {"choice": "dropout in a graph", "holds": True, "error": ""}


def dropped(world: World, here: Any) -> list[dict[str, Any]]:
    with as_on_a_gpu():
        return said_by(world, training.dropout_on_rank, here)
