"""The step's roofline, against published results and by hand."""

import importlib.util

import pytest

from bertbench.plan.step_time import Gpu
from lab.bench.roofline import (
    EFFICIENCIES,
    HOST_US,
    Stack,
    best_published,
    mean_length,
    published_rate,
    published_stack,
    samples_per_second,
    step_time,
    tokens_of,
)
from lab.kernels import absent_gpu
from tests.conftest import Answer, Printed

GPUS: tuple[Gpu, ...] = ("a100", "h100", "h200")


@pytest.mark.parametrize(("gpu", "samples_per_s"), [("a100", 307), ("h100", 971), ("h200", 1029)])
def test_a_stack_as_the_published_ones_gives_their_samples_per_second(gpu: Gpu, samples_per_s: float) -> None:
    row = best_published(gpu)
    assert published_rate(row) == pytest.approx(samples_per_s, rel=0.01)
    assert samples_per_second(published_stack(gpu, row), row.samples_to_converge) == pytest.approx(
        samples_per_s, rel=0.15
    )


def test_terms_of_a_step_are_work_over_rate_and_share_and_many_launches_leave_the_gpu_waiting() -> None:
    stack = Stack("by hand", "h200", 96, 48e9, 1000, "counted", False, "attention_hopper", 4)
    time = step_time(stack)
    # 96 samples of 463.5 + 7.4 GFLOP in products at 0.64 of 989 TFLOP/s; 48 GB at 0.85 of 4.8 TB/s
    assert time.products == pytest.approx(96 * 470.9e9 / (0.64 * 989e12) * 1e3, rel=0.002)
    assert time.attention == pytest.approx(96 * 29.1e9 / (0.20 * 989e12) * 1e3, rel=0.005)
    assert time.memory == pytest.approx(48 / 4.08)
    assert time.host == pytest.approx(1000 * HOST_US / 1e3)
    assert time.limit == "products"
    assert time.total == pytest.approx(sum(time) - time.host)
    waiting = step_time(stack._replace(samples=4, launches=5000))
    assert (waiting.limit, waiting.total) == ("host", pytest.approx(5000 * HOST_US / 1e3))
    assert mean_length() == pytest.approx(255.8, abs=0.1)
    assert tokens_of(96) == 24_576


def test_without_triton_nothing_can_be_counted(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    monkeypatch.setattr(absent_gpu, "find_spec", lambda _: None)
    assert "install bertbench[kernels]" in printed("lab", "roofline", code=2)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed: the extra `kernels`")
def test_the_command_states_both_stacks_on_all_gpus(answer: Answer) -> None:
    found = answer("lab", "roofline")
    assert [(step["gpu"], step["bytes_and_launches_are"]) for step in found["steps"]] == [
        (gpu, word) for word in ("computed", "counted") for gpu in GPUS
    ]
    for step in found["steps"][:3]:
        assert step["samples_per_s_computed"] == pytest.approx(step["samples_per_s_measured"], rel=0.15)
    assert set(found["efficiencies"]) == set(EFFICIENCIES)
