"""FLOP/s and MFU, computed by hand: of the demo's step, of a real run, of devices with and without a known peak."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, gpu_kind
from bertbench.machine.peak_rate import PeakRate, gpu_peak, peak_rate
from bertbench.model.shape import BatchCounts
from bertbench.runs.files import ResultFiles
from bertbench.runs.metrics import FlopRate
from bertbench.runs.run_progress import RunProgress
from bertbench.runs.run_summary import read_summary
from bertbench.runs.trackers import final_numbers, tracked_steps
from bertbench.training.train import train
from tests.compliance.packages import run_log
from tests.conftest import Answer, Printed, Tiny
from tests.ranks import run_ranks
from tests.runs.written import leave, row, write_run
from tests.training.steps import sampler_of

PEAK = PeakRate(0.125, "fp32", "a CPU", "measured here")


def test_the_demos_mfu_equals_a_calculation_by_hand() -> None:
    """Two sequences of 32 and 21 tokens, 7 of them masked, in 10 ms on the demo's two ranks."""
    counts = BatchCounts.of_sequences(np.array([32, 21], np.int16), masked=7)
    assert counts == (53, 32 * 32 + 21 * 21, 7)
    forward = 0
    for tokens in (32, 21):
        qkv_and_output = 4 * 2 * tokens * 128 * 128
        feed_forward = 2 * 2 * tokens * 128 * 256
        scores_and_mixture = 2 * 2 * tokens * tokens * 128
        forward += 2 * (qkv_and_output + feed_forward + scores_and_mixture)  # two layers
    forward += 7 * 2 * (128 * 128 + 128 * 512)  # the head's dense layer and its vocabulary
    tflops = 3 * forward / 0.010 / 2 / 1e12
    fields = FlopRate.of(load_system("cpu_demo"), PEAK).fields(counts, step_ms=10.0)
    assert fields == pytest.approx({"tflops_per_device": tflops, "mfu": tflops / 0.125}, rel=1e-5)


def test_recomputation_is_counted_separately(tiny: Tiny) -> None:
    counts = BatchCounts(tokens=100, pairs=1000, masked=0)
    fields = FlopRate.of(tiny("parallel.recompute=true"), PEAK).fields(counts, step_ms=10.0)
    assert fields["hardware_tflops_per_device"] == pytest.approx(4 / 3 * fields["tflops_per_device"], rel=1e-5)
    assert fields["hfu"] == pytest.approx(4 / 3 * fields["mfu"], rel=1e-5)


def test_without_a_known_peak_there_is_a_rate_but_no_share(tiny: Tiny) -> None:
    unknown = gpu_peak("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16")
    fields = FlopRate.of(tiny(), unknown).fields(BatchCounts(100, 1000, 10), step_ms=10.0)
    assert fields["tflops_per_device"] > 0
    assert fields["mfu"] is None
    assert "NVIDIA H100 80GB HBM3 MIG 1g.10gb isn't in the table" in unknown.source


KINDS = {
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A100-SXM4-80GB (400W)": "A100",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100-PCIe-80GB": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200",
    "NVIDIA H20": "H20",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA L40S": "L40S",
    "Tesla V100-PCIE-16GB": "V100 PCIe",
    "Tesla V100-SXM2-32GB": "V100",
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": None,
    "NVIDIA GeForce RTX 4090": None,
    "NVIDIA A10G": None,
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_driver_s_name_leads_to_one_row_of_the_table(name: str, kind: str | None) -> None:
    assert gpu_kind(name) == kind


def test_peaks_are_dense_and_a_format_that_a_gpu_lacks_has_none() -> None:
    assert (DENSE_TFLOPS["A100"]["bf16"], DENSE_TFLOPS["H100"]["bf16"]) == (312, 989)  # 624 and 1,979 are sparse
    assert gpu_peak("Tesla V100-SXM2-16GB", "fp16").tflops == 125
    lacking = gpu_peak("Tesla V100-SXM2-16GB", "bf16")
    assert (lacking.tflops, lacking.source) == (None, "its data sheet states no rate in bf16")


def trained(world: World, system: System, log: Path) -> None:
    files = ResultFiles(log) if world.leads else None
    if files:
        files.describe(system, 11)
    train(system, world, 11, files, RunProgress(system, enabled=False))


@pytest.mark.parametrize(
    "splits",
    [(), pytest.param(("parallel.pipeline=2", "parallel.microbatches=3"), marks=pytest.mark.slow)],
    ids=["data", "pipeline"],
)
def test_a_real_runs_mfu_agrees_with_a_hand_calculation(
    tiny: Tiny, tmp_path: Path, answer: Answer, printed: Printed, splits: tuple[str, ...]
) -> None:
    system = tiny("precision.compute=fp32", *splits)
    log = tmp_path / "result_0.txt"
    run_ranks(2, trained, system, log)
    (reported,) = answer("report", log)
    peak = json.loads((log.with_suffix("") / "peak.json").read_text())
    assert peak["number_format"] == "fp32"
    assert "1024 x 1024 matmuls on 2 ranks at once" in peak["source"]

    rows = [json.loads(line) for line in (log.with_suffix("") / "metrics.jsonl").read_text().splitlines()]
    total = sum(step_flop(system, number) for number in range(len(rows)))
    seconds = sum(line["step_ms"] for line in rows) / 1e3
    run = reported["runs"][0]
    assert run["tflops_per_device"] == pytest.approx(total / seconds / 2 / 1e12, rel=0.01)
    assert run["mfu"] == pytest.approx(total / seconds / 2 / 1e12 / peak["tflops"], rel=0.01)
    assert f"MFU {run['mfu']:.1%}" in printed("report", log)


def step_flop(system: System, number: int, hidden: int = 14, inner: int = 23, vocabulary: int = 97) -> float:
    """The tiny model's operations in a step, sample by sample: two layers; six operations for a weight and token."""
    sampler = sampler_of(system)
    ids = sampler.planner.plan(number).assigned.ids_S
    flop = 0.0
    for tokens, masked in zip(sampler.dataset.lengths(ids).tolist(), sampler.dataset.masked(ids).tolist(), strict=True):
        weights = 2 * (4 * hidden * hidden + 2 * hidden * inner)
        flop += 6 * tokens * weights + 2 * 12 * tokens * tokens * hidden + 6 * masked * hidden * (hidden + vocabulary)
    return flop


def test_the_peak_is_the_highest_that_any_run_measured(tmp_path: Path) -> None:
    """A busy machine measures less than its peak, and an earlier, higher measurement counts."""
    measured, stored, after_a_slow_run, after_a_fast_run = run_ranks(1, peaks, str(tmp_path))[0]
    assert measured == stored
    assert measured > 1e-3
    assert after_a_slow_run > measured / 100
    assert after_a_fast_run == 1e6


def peaks(world: World, folder: str) -> list[float | None]:
    """The first peak, what is stored then, and the peak if a much slower and a much faster run came before."""
    os.environ["XDG_CACHE_HOME"] = folder
    cache = Path(folder) / "bertbench" / "peak.json"
    first = peak_rate("fp32", world).tflops
    ((key, stored),) = json.loads(cache.read_text()).items()
    later = []
    for earlier in (first / 1e3 if first else None, 1e6):
        cache.write_text(json.dumps({key: earlier}))
        later.append(peak_rate("fp32", world).tflops)
    return [first, stored, *later]


RATES: list[dict[str, Any]] = [
    {"step_ms": 1000.0, "tflops_per_device": 0.1, "mfu": 0.5},
    {"step_ms": 3000.0, "tflops_per_device": 0.02, "mfu": 0.1},
]


def test_a_runs_rates_are_means_over_time(tmp_path: Path, printed: Printed) -> None:
    """0.1 for 1 s and 0.02 for 3 s: 0.16 operations in 4 s are 0.04."""
    log = leave(tmp_path, 0, 100, metrics="".join(row(n, **rates) for n, rates in enumerate(RATES, start=1)))
    peak = {"tflops": 0.2, "number_format": "bf16", "device": "x", "source": "measured here"}
    (log.with_suffix("") / "peak.json").write_text(json.dumps(peak))
    flops = read_summary(log).flops
    assert (flops.tflops_per_device, flops.mfu, flops.hfu) == (pytest.approx(0.04), pytest.approx(0.2), None)
    line = "FLOP/s: 0.04 TFLOP/s per device, MFU 20.0%; peak 0.2 in bf16: measured here"
    assert line in printed("report", log)


def test_report_says_why_a_share_isn_t_known(tmp_path: Path, printed: Printed, answer: Answer) -> None:
    log = leave(tmp_path, 0, 100, metrics=row(1, tflops_per_device=12.0, mfu=None))
    peak = {"tflops": None, "number_format": "bf16", "source": "a GPU isn't in the table of data-sheet peaks"}
    (log.with_suffix("") / "peak.json").write_text(json.dumps(peak))
    assert "12 TFLOP/s per device; MFU unknown: a GPU isn't in the table" in printed("report", log)
    (reported,) = answer("report", log)
    assert (reported["runs"][0]["mfu"], reported["runs"][0]["tflops_per_device"]) == (None, 12.0)
    assert reported["runs"][0]["flops"]["peak_source"].startswith("a GPU isn't in")


def test_a_run_without_rates_doesn_t_mention_them(tmp_path: Path, printed: Printed) -> None:
    assert "FLOP/s" not in printed("report", write_run(tmp_path))


def test_compare_has_the_rates_of_both_sides(tmp_path: Path, answer: Answer, printed: Printed) -> None:
    for side, mfu in (("a", 0.2), ("b", 0.3)):
        log = run_log("open", evaluations=1, seconds=10, seed=1)
        leave(tmp_path / side, 0, 10, log=log, metrics=row(1, tflops_per_device=mfu / 10, mfu=mfu))
    sides = [tmp_path / "a", tmp_path / "b"]
    measures = {measure["name"]: measure for measure in answer("compare", *sides)["measures"]}
    assert measures["MFU, %"]["ratio"]["ratio"] == pytest.approx(1.5)
    assert measures["TFLOP/s per device"]["a"]["mean"] == pytest.approx(0.02)
    assert "0.0200" in printed("compare", *sides)


def test_trackers_get_the_rates_of_steps_and_of_the_run(tmp_path: Path) -> None:
    log = leave(tmp_path, 0, 100, metrics=row(1, tflops_per_device=0.02, mfu=0.3))
    run = read_summary(log)
    values = tracked_steps(run)[0].values
    assert (values["train/mfu"], values["train/tflops_per_device"]) == (0.3, 0.02)
    numbers = final_numbers(run)
    assert (numbers["mfu"], numbers["tflops_per_device"]) == (0.3, 0.02)
