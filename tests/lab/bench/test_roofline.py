"""The step's roofline, against published results and by hand."""

import importlib.util

import pytest

from bertbench.config import load_system
from bertbench.plan.step_time import PARAMETERS, Gpu
from lab.bench.stack_time import (
    EFFICIENCIES,
    HOST_US,
    NODE_US,
    Stack,
    mean_length,
    samples_per_second,
    step_time,
    tokens_of,
)
from lab.bench.stacks import CountedStep, best_published, our_stack, published_rate, published_stack
from lab.kernels import absent_gpu
from tests.conftest import Answer, Printed

GPUS: tuple[Gpu, ...] = ("a100", "h100", "h200")


@pytest.mark.parametrize(("gpu", "samples_per_s"), [("a100", 307), ("h100", 971), ("h200", 1029)])
def test_a_stack_like_the_published_ones_reaches_their_samples_per_second(gpu: Gpu, samples_per_s: float) -> None:
    row = best_published(gpu)
    assert published_rate(row) == pytest.approx(samples_per_s, rel=0.01)
    assert samples_per_second(published_stack(gpu, row), row.samples_to_converge) == pytest.approx(
        samples_per_s, rel=0.15
    )


def test_terms_of_a_step_are_work_over_rate_and_share_and_many_launches_make_the_gpu_wait() -> None:
    stack = Stack("by hand", "h200", 8, 96, 0.02, 48e9, 1000, 500, "counted", False, "attention_hopper", 0.003)
    time = step_time(stack)
    # 96 samples of 463.5 + 7.4 GFLOP in products at 0.64 of 989 TFLOP/s, and 2 % filler; 48 GB at 0.85 of 4.8 TB/s
    assert time.products == pytest.approx(1.02 * 96 * 470.9e9 / (0.64 * 989e12) * 1e3, rel=0.002)
    assert time.attention == pytest.approx(96 * 29.1e9 / (0.20 * 989e12) * 1e3, rel=0.005)
    assert time.memory == pytest.approx(48 / 4.08)
    assert time.communication == pytest.approx(3)
    assert time.gaps == pytest.approx(500 * NODE_US / 1e3)
    assert time.host == pytest.approx(1000 * HOST_US / 1e3)
    assert time.limit == "products"
    assert time.total == pytest.approx(sum(time) - time.host)
    waiting = step_time(stack._replace(samples=4, launches=5000))
    assert (waiting.limit, waiting.total) == ("host", pytest.approx(5000 * HOST_US / 1e3))
    # the encoder's 463.5 GFLOP at 0.40 of fp8's 1,979 TFLOP/s, the head's 7.4 as before
    a_sample = 463.5e9 / (0.40 * 1979e12) + 7.4e9 / (0.64 * 989e12)
    in_fp8 = step_time(stack._replace(in_fp8=True))
    assert in_fp8.products == pytest.approx(1.02 * 96 * a_sample * 1e3, rel=0.002)
    assert in_fp8._replace(products=time.products) == time
    assert mean_length() == pytest.approx(255.8, abs=0.1)
    assert tokens_of(96) == 24_576


COUNTED = CountedStep(token_bytes=80e9, optimizer_bytes=16e9, nodes=700)
ALL_REDUCE_S = 2 * 7 / 8 * 2 * PARAMETERS / 360e9
"""Of 16-bit gradients in a node of eight, by NVLink 4."""
BUCKETS = 6
"""A bucket takes tensors until it has 200 MiB of BERT-Large's 1,283."""


def test_one_gpu_sends_nothing_and_pays_for_the_filler_of_its_recorded_sizes() -> None:
    stack = our_stack("h100", 1, 96, COUNTED, load_system("dgxh200_n1"))
    assert 0.002 < stack.filler < 0.02
    assert stack.bytes == pytest.approx(80e9 * (1 + stack.filler) + 16e9)
    assert (stack.exposed_s, stack.launches, stack.nodes) == (0, 0, 700)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_only_a_system_in_fp8_multiplies_in_fp8(precision: str) -> None:
    stack = our_stack("h100", 8, 96, COUNTED, load_system("dgxh200_n1", [f"precision.compute={precision}"]))
    assert stack.in_fp8 == (precision == "fp8")
    assert stack.name == f"bertbench, {precision}, 8 GPUs"


CASTS = (6 - 2 / 8) * 24 * 12 * 1024**2
"""Bytes that casting sharded weights of the layers moves: 4 read and 2 written by each rank, which LAMB writes for one
rank alone."""


@pytest.mark.parametrize(("settings", "bytes_of_a_parameter", "casts", "optimizer_share", "exposed_s"), [
    (("clip.mode=before",), 4 + 6 - 4, 0, 1, ALL_REDUCE_S),
    (("clip.mode=after",), 6 - 4, 0, 1, ALL_REDUCE_S / BUCKETS),
    (("clip.mode=bucket", "hardware.division=open"), 4 + 6 - 4, 0, 1, ALL_REDUCE_S / BUCKETS),
    (("clip.mode=after", "communication.compression=fp16"), 12, 0, 1, ALL_REDUCE_S / BUCKETS),
    # a gather in fp32 takes twice as long as a reduce-scatter in 16 bits; the first of its buckets is waited for
    (("clip.mode=before", "optimizer.sharded=true"), 4 + 6 + 6 / 8, CASTS, 1 / 8, ALL_REDUCE_S * (1 / 2 + 1 / BUCKETS)),
    (
        ("clip.mode=before", "optimizer.sharded=true", "precision.compute=fp8"),
        4 + 6 + 6 / 8, 0, 1 / 8, ALL_REDUCE_S * (1 / 2 + 1 / BUCKETS),
    ),
])  # fmt: skip
def test_eight_gpus_clip_reduce_and_update_as_their_system_says(
    settings: tuple[str, ...], bytes_of_a_parameter: float, casts: float, optimizer_share: float, exposed_s: float
) -> None:
    system = load_system("dgxh200_n1", ["optimizer.sharded=false", *settings])
    stack = our_stack("h100", 8, 96, COUNTED, system)
    expected = 80e9 * (1 + stack.filler) + 16e9 * optimizer_share + bytes_of_a_parameter * PARAMETERS + casts
    assert stack.bytes == pytest.approx(expected)
    assert stack.exposed_s == pytest.approx(exposed_s)


def test_without_triton_nothing_can_be_counted(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    monkeypatch.setattr(absent_gpu, "find_spec", lambda _: None)
    assert "install bertbench[kernels]" in printed("lab", "roofline", code=2)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed: the extra `kernels`")
def test_the_command_states_both_stacks_on_all_gpus(answer: Answer) -> None:
    found = answer("lab", "roofline")
    assert [(step["gpu"], step["bytes_and_launches_are"]) for step in found["steps"][:3]] == [
        (gpu, "computed") for gpu in GPUS
    ]
    ours = found["steps"][3:]
    assert [(step["gpu"], step["stack"]) for step in ours] == [
        (gpu, f"bertbench, {precision}, {gpus}")
        for gpu in GPUS
        for precision in (("bf16",) if gpu == "a100" else ("bf16", "fp8"))
        for gpus in ("1 GPU", "8 GPUs")
    ]
    assert {step["bytes_and_launches_are"] for step in ours} == {"counted"}
    for step in found["steps"][:3]:
        assert step["samples_per_s_computed"] == pytest.approx(step["samples_per_s_measured"], rel=0.15)
    assert {row["evidence"] for row in found["efficiencies"].values()} == {"assumed"}, "or the GPU it was measured on"
    assert set(found["efficiencies"]) == set(EFFICIENCIES)
