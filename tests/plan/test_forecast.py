"""Forecasts against published results, and their parts against numbers worked out by hand."""

import math
from statistics import median

import numpy as np
import pytest

from bertbench.common.errors import ConfigError
from bertbench.config import load_system
from bertbench.plan.calibrate import calibration, leave_out, other_results
from bertbench.plan.calibrating_results import Method, calibrating, forecast_results
from bertbench.plan.convergence import reference_points, samples_to_converge
from bertbench.plan.forecast import forecast_run
from bertbench.plan.load_efficiency import flops, flops_per_sample, load_efficiency
from bertbench.plan.step_time import (
    HARDWARE,
    Calibration,
    Workload,
    all_reduce_seconds,
    run_seconds,
)


def test_forecasts_of_unseen_results_are_within_the_promised_error() -> None:
    held = leave_out("row")
    assert len(held) == 32
    assert {one.row.accelerators for one in held} == {8, 16, 32, 64, 128, 1024, 1368, 2048, 4096, 4320}
    errors = [abs(one.error) for one in held]
    assert median(errors) <= 0.10
    assert max(errors) <= 0.25
    by_scale = [abs(one.error) for one in leave_out("scale")]
    assert len(by_scale) == 32
    assert median(errors) < median(by_scale) <= 0.10, "near twins help"
    assert max(by_scale) <= 0.25
    # 103 A100 rows less these and the two whose logs don't tell how many GPUs there were
    assert len(other_results("a100")) == sum("A100" in row.accelerator for row in forecast_results()) - 32 - 2


def test_each_submitters_last_round_at_a_scale_calibrates() -> None:
    rounds = {(row.submitter, row.accelerators): row.rounds for row in calibrating()}
    assert rounds["NVIDIA", 64] == "2.1"
    assert rounds["NVIDIA", 4320] == "1.1", "there is no later one"
    assert not any(row.submitter == "Supermicro" for row in calibrating()), "the same as SUPERMICRO of 2.0"
    assert all(row.accelerators == 8 * row.nodes and "SXM" in row.accelerator for row in calibrating())


def test_a_row_left_out_is_left_out_altogether() -> None:
    rows = [row for row in forecast_results() if row.system == "dgxa100_n128_ngc22.04_pytorch"]
    (only,) = rows  # nobody else used these hyper-parameters
    known = samples_to_converge(only.global_batch_size, only.hyper_parameters, rows)
    unknown = samples_to_converge(only.global_batch_size, only.hyper_parameters, [])
    assert known.number == only.samples_to_converge
    assert unknown.number == reference_points()[4096][0]
    (held,) = [one for one in leave_out("row") if one.row is only]
    work = Workload("a100", 1024, 128, 4096, unknown.number, Method("packed", graphs=True))
    assert held.predicted_s == run_seconds(work, held.calibrated).total
    assert held.calibrated != calibration()


def test_samples_to_converge_between_reference_points_are_interpolated() -> None:
    points = reference_points()
    assert points[448][0] == pytest.approx(2_414_421, abs=1)
    between = samples_to_converge((448 + 1536) // 2, (), []).number
    assert between == pytest.approx((points[448][0] + points[1536][0]) / 2)


def test_the_work_of_a_sample_is_that_of_bert_large_unpadded() -> None:
    # 6 FLOPs a weight and token in training; 24 layers of 12.6 M weights: 1,812 MFLOP a token; the head on 14.93 % of
    # the tokens adds 6 x 0.1493 x (1024^2 + 1024 x 30,528); a pair of tokens takes 12 x 24 x 1024
    assert flops_per_sample() == pytest.approx(500e9, rel=0.005)
    assert flops(np.array([1]))[0] == pytest.approx(1_811_939_328 + 0.1493 * 193_855_488 + 294_912)


def test_load_efficiency_grows_with_samples_and_with_better_assignment() -> None:
    assert load_efficiency("padded", 8, 56) == pytest.approx(0.491, abs=0.01)
    assert load_efficiency("global_exchange", 1024, 2) == pytest.approx(0.85, abs=0.02)


def test_an_all_reduce_takes_the_time_of_its_bytes_on_the_wire() -> None:
    a100 = HARDWARE["a100"]
    gradient = 2 * 336_232_258
    inside = all_reduce_seconds(a100, 8, 1, 1.0, gradient)
    assert inside == pytest.approx(2 * 7 / 8 * gradient / 230e9)
    between = all_reduce_seconds(a100, 16, 2, 0.5, gradient) - inside
    assert between == pytest.approx(2 * 1 / 2 * gradient / 8 / 12.5e9 + 2 * 5e-6)
    tree = 2 * gradient / 8 / 12.5e9 + 2 * 7 * 5e-6  # at 128 nodes fewer hops than the ring's 254
    assert all_reduce_seconds(a100, 1024, 128, 0.5, gradient) - inside == pytest.approx(tree)


def test_overlap_hides_communication_and_a_graph_hides_waiting() -> None:
    numbers = Calibration(0.5, 0.5, 0.007)
    plain = Workload("a100", 1024, 128, 16384, 3e6, Method())
    parts = run_seconds(plain, numbers)
    assert parts.waiting == pytest.approx(3e6 / 16384 * 0.007 * math.log2(128))
    hidden = run_seconds(plain._replace(method=Method(overlap=True)), numbers)
    assert 0 < hidden.communication < 0.1 * parts.communication
    assert run_seconds(plain._replace(method=Method(graphs=True)), numbers).waiting == 0


def test_a_system_s_forecast_counts_the_bytes_that_it_sends() -> None:
    half, whole = (
        forecast_run(load_system("dgxa100_n8", [f"communication.compression={name}"])).seconds
        for name in ("bf16", "none")
    )
    assert whole.communication == pytest.approx(2 * half.communication, rel=0.05)


def test_a_forecast_counts_how_a_system_draws_and_assigns_samples() -> None:
    def imbalance(*overrides: str) -> float:
        seconds = forecast_run(load_system("dgxa100_n128_open", overrides)).seconds
        return seconds.imbalance / seconds.compute

    # arXiv 2402.02447's quotas with a snake: .958 by an independent simulation; a raster .924
    assert 1 / (1 + imbalance()) == pytest.approx(0.958, abs=0.005)
    assert 1 / (1 + imbalance("data.deal=raster")) == pytest.approx(0.924, abs=0.005)
    assert imbalance("data.strata_quotas=null") != imbalance()
    assert imbalance('data.cost={"linear": 1.0, "quadratic": 1.0}') > imbalance()


def test_a_forecast_of_steps_in_one_cuda_graph_does_not_wait() -> None:
    plain, graphs = (
        forecast_run(load_system("dgxa100_n8_open", [f"compute.compile={mode}"])).seconds
        for mode in ("default", "graphs")
    )
    assert graphs.waiting == 0 < plain.waiting
    assert graphs.compute == plain.compute


def test_forecasts_fall_with_gpus_and_another_gpu_is_faster() -> None:
    minutes = [forecast_run(load_system(f"dgxa100_n{nodes}")).minutes for nodes in (1, 2, 4, 8, 16, 32, 64)]
    assert minutes == sorted(minutes, reverse=True)
    # batch 4,096 takes more steps than 4,608, and every step of 128 nodes waits
    assert forecast_run(load_system("dgxa100_n128")).seconds.limit == "waiting"
    assert forecast_run(load_system("dgxa100_n1")).seconds.limit == "compute"
    assert forecast_run(load_system("dgxa100_n1"), "h100").minutes < minutes[0] / 2
    assert forecast_run(load_system("dgxh200_n1")).gpu == "h200"
    with pytest.raises(ConfigError, match="doesn't train BERT-Large on GPUs"):
        forecast_run(load_system("cpu_demo"))
