"""The range of a forecast, and the warnings for systems unlike those that calibrate forecasts."""

import numpy as np
import pytest

from bertbench.common.published_results import PublishedResult
from bertbench.config import load_system
from bertbench.plan.calibrate import leave_out, other_results
from bertbench.plan.forecast import forecast_run
from bertbench.plan.forecast_errors import TimeRange, covered, machine_kind, range_of
from tests.conftest import Answer

PCIE = (
    "hardware.accelerator_model_name=NVIDIA A100-PCIe-80GB", "hardware.accelerators_per_node=4",
    "launch.ranks_per_node=4",
)  # fmt: skip


def test_nine_of_ten_published_results_lie_in_the_range_of_their_forecast() -> None:
    system = load_system("dgxa100_n8")
    held = [*leave_out("row"), *(one for one in other_results("a100") if _like_a_dgx(one.row))]
    inside = 0
    for one in held:
        found = range_of(system, "a100", one.predicted_s / 60)
        assert found.low_min < one.predicted_s / 60 < found.high_min
        inside += found.low_min <= one.row.seconds / 60 <= found.high_min
    assert len(held) == 46
    assert inside in (40, 41, 42)  # of 46; the quantiles leave 5 % out on each side


def test_coverage_leaves_each_result_out_of_its_own_range() -> None:
    # of 0 to 20 without 1, 5 % lie below 0 + 0.95 x 2 = 1.9: 1 is outside, as are 0, 19 and 20; 2 is above 0.95
    assert covered([float(number) for number in range(21)]) == 17
    assert covered([0.0, 1.0, 1.0, 1.0]) == 3


def _like_a_dgx(row: PublishedResult) -> bool:
    return row.accelerators == 8 * row.nodes and "SXM" in row.accelerator


def test_a_range_has_two_digits_and_follows_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(TimeRange(98.7, 104.6, 118.4, "")) == "100 min (99 to 120)"
    assert str(TimeRange(0.32, 0.37, 1.02, "")) == "22 s (19 to 61)", "seconds below a minute"
    # 21 errors from -0.5 to 0.5: the quantiles at 5 and 95 % are -0.45 and 0.45; published = forecast / (1 + error)
    errors = {machine_kind("h200", "SXM", 8, 1): list(np.linspace(-0.5, 0.5, 21))}
    monkeypatch.setattr("bertbench.plan.forecast_errors.errors_by_kind", lambda gpu: errors)
    found = range_of(load_system("dgxh200_n1"), "h200", 29.0)
    assert (found.low_min, found.high_min) == (pytest.approx(29 / 1.45), pytest.approx(29 / 0.55))


def test_pcie_cards_and_small_nodes_raise_a_warning_with_published_times() -> None:
    plain, cards = load_system("dgxa100_n4"), load_system("dgxa100_n4", PCIE)
    assert forecast_run(plain).warnings == []
    pcie, nodes = forecast_run(cards).warnings
    # 11 results with A100 PCIe cards on several nodes: forecasts 21 to 52 % too short, times 26 to 107 % longer
    assert "11 published results" in pcie
    assert "took 26% to 107% longer than forecast" in pcie
    assert nodes.startswith("4 GPUs per node")
    assert forecast_run(cards).range.low_min > forecast_run(cards).minutes


def test_several_nodes_of_h100s_borrow_from_a100s_and_other_optimizers_from_lamb() -> None:
    found = forecast_run(load_system("dgxa100_n8"), "h100").warnings
    assert any("several nodes of H100s" in warning for warning in found)
    assert any("most published H100 results compute in fp8" in warning for warning in found)
    (adam,) = forecast_run(load_system("dgxa100_n8_open")).warnings
    assert "the samples to converge are those of LAMB" in adam


def test_a_kind_without_results_takes_its_range_from_the_most_similar_and_says_so() -> None:
    found = forecast_run(load_system("dgxa100_n8"), "h200")
    assert any("too few published results of this kind" in warning for warning in found.warnings)
    assert found.range.source == f"{len(other_results('h200'))} published results: all H200 SXM"


def test_a_batch_that_does_not_fit_raises_a_warning_and_json_keeps_its_fields(answer: Answer) -> None:
    words = ["estimate", "dgxa100_n8", "--set", "data.global_batch_size=24576"]
    found = answer(*words)
    (warning,) = found["warnings"]
    assert warning.startswith("batch 24,576: each GPU needs 99 GB but has 80 GB")
    low, high = found["range_min"]
    assert low < found["predicted_min"] < high
    assert {"system", "gpu", "gpus", "samples_to_converge", "samples_source", "seconds", "limit"} <= found.keys()
    assert answer(*words, "--set", "data.gradient_accumulation_steps=2")["warnings"] == []
