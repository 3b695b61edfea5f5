"""Estimates against published results, and their parts on results that are small enough to work out by hand."""

from dataclasses import replace
from statistics import median

import pytest

from bertbench.common.published_results import PublishedResult, published_results
from bertbench.config import load_system
from bertbench.plan.estimate import (
    MEDIAN_ERROR,
    OUR_SHARE,
    WORST_RATIO,
    estimate_run,
    rate_of,
    reference_points,
    samples_to_converge,
)
from docs.site.gpu_rates import flops_per_sample, gpu_rates
from tests.conftest import Answer, Printed

# 8 GPUs with 4 samples each, 100 steps of 0.5 s
RESULT = PublishedResult(
    rounds="9.9", submitter="A", system="a", division="closed", accelerator="NVIDIA H100-SXM5-80GB", accelerators=8,
    nodes=1, seconds=50.0, minutes=1.0, samples_to_converge=3200.0, global_batch_size=32,
    hyper_parameters=(0.1, 0.5, 0.5, 100.0, 10.0, 0.0),
)  # fmt: skip


def test_the_stated_errors_are_those_of_published_results_without_their_submitter() -> None:
    published = published_results()
    ratios = []
    for result in published:
        others = [other for other in published if other.submitter.lower() != result.submitter.lower()]
        batch = result.global_batch_size
        rate = rate_of(result.accelerator, result.accelerators, batch, others) if result.accelerators else None
        if rate is not None:
            samples = samples_to_converge(batch, result.hyper_parameters, others)
            ratios.append(samples.number / rate.samples_per_s / result.seconds)
    assert len(ratios) > 200
    assert median(abs(ratio - 1) for ratio in ratios) == pytest.approx(MEDIAN_ERROR, abs=0.005)
    worst = max(max(ratio, 1 / ratio) for ratio in ratios)
    assert worst == pytest.approx(WORST_RATIO, abs=0.05)
    within = sum(max(ratio, 1 / ratio) < 1.6 for ratio in ratios)
    assert within >= 0.9 * len(ratios), "the margin of a job's time limit (new_system.py) covers nine of ten"


def test_samples_are_those_of_the_same_batch_and_values_or_of_the_nearest_reference_point() -> None:
    published = [replace(RESULT, samples_to_converge=samples) for samples in (1.0, 5.0, 7.0)]
    assert samples_to_converge(32, RESULT.hyper_parameters, published).number == 5.0
    other_rate = (0.2, *RESULT.hyper_parameters[1:])
    points = reference_points()
    assert samples_to_converge(32, other_rate, published).number == points[256][0]
    assert samples_to_converge(3500, RESULT.hyper_parameters, published).number == points[3072][0]


def test_a_step_grows_with_the_samples_of_an_accelerator_and_does_not_shrink_with_them() -> None:
    def step_s(number: int, batch: int) -> float:
        rate = rate_of(RESULT.accelerator, number, batch, [RESULT])
        assert rate
        return batch / rate.samples_per_s

    assert step_s(8, 32) == pytest.approx(0.5)
    assert step_s(16, 64) == pytest.approx(0.5), "twice the accelerators for twice the batch"
    assert step_s(8, 96) == pytest.approx(1.5)
    assert step_s(8, 16) == pytest.approx(0.5)


def test_the_rate_is_that_of_the_nearest_result_on_the_same_model() -> None:
    far = replace(RESULT, accelerators=64, global_batch_size=256, submitter="far")
    fast = replace(RESULT, seconds=25.0, submitter="fast")
    slow = replace(RESULT, seconds=99.0, submitter="slow")
    cards = replace(RESULT, accelerator="NVIDIA H100-PCIe-80GB", submitter="cards")
    published = [far, fast, slow, RESULT, cards]

    def chosen(accelerator: str, number: int, batch: int) -> str | None:
        rate = rate_of(accelerator, number, batch, published)
        return rate and rate.result.submitter

    assert chosen("NVIDIA H100 80GB HBM3", 8, 32) == "A", "of three equally near ones, the one with the median rate"
    assert chosen("NVIDIA H100 80GB HBM3", 48, 192) == "far"
    assert chosen("NVIDIA H100 PCIe", 48, 192) == "cards"
    assert chosen("some accelerator", 8, 32) is None


def test_a_system_s_time_is_its_samples_by_its_rate(answer: Answer) -> None:
    found = answer("estimate", "dgxh200_n1")
    assert (found["gpus"], found["global_batch_size"]) == (8, 768)
    assert found["expected_minutes"] == pytest.approx(found["samples"] / found["samples_per_s"] / 60, rel=1e-3)
    assert found["step_ms"] == pytest.approx(1e3 * 768 / found["samples_per_s"], rel=1e-3)
    assert 4.9 < found["expected_minutes"] < 5.3, "13 published runs took 4.97 to 5.22 minutes"
    assert (found["median_error"], found["worst_ratio"]) == (MEDIAN_ERROR, WORST_RATIO)


def test_estimates_fall_with_nodes() -> None:
    minutes = [estimate_run(load_system(f"dgxa100_n{nodes}")).minutes or 0.0 for nodes in (1, 2, 4, 8, 64, 128)]
    assert minutes == sorted(minutes, reverse=True)


def test_without_a_published_result_there_are_samples_and_a_way_to_measure(answer: Answer, printed: Printed) -> None:
    words = ("estimate", "dgxa100_n1", "--set", "hardware.accelerator_model_name=some accelerator")
    found = answer(*words)
    assert found["samples"] > 2_000_000
    for name in ("samples_per_s", "rate_source", "expected_minutes", "step_ms"):
        assert found[name] is None
    assert "bertbench train dgxa100_n1 --smoke" in printed(*words)
    assert "BERT-Large" in printed("estimate", "cpu_demo", code=2)


def test_our_share_of_the_published_rate_is_that_of_the_recorded_run() -> None:
    rows = [row.strip("| ").split(" | ") for row in gpu_rates().splitlines()]
    of_nvidia = [row for row in rows if row[0].startswith("NVIDIA") and row[1:3] == ["8 H100", "result logs, median"]]
    ((*_, share),) = of_nvidia
    assert share == f"{OUR_SHARE:.2f}"


def test_the_work_of_a_sample_is_that_of_bert_large_unpadded() -> None:
    # 6 FLOPs a weight and token in training; 24 layers of 12.6 M weights: 1,812 MFLOP a token; the head on 14.93 % of
    # the tokens adds 6 x 0.1493 x (1024^2 + 1024 x 30,528); a pair of tokens takes 12 x 24 x 1024
    assert flops_per_sample() == pytest.approx(500e9, rel=0.005)
