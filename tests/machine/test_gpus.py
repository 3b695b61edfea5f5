"""Which GPUs, or slices of a GPU, a run on this machine may use."""

import pytest

from bertbench.machine.describe import accelerators
from bertbench.machine.gpus import present_gpus
from tests.machine import driver
from tests.machine.driver import H100, Card

SMALL = Card("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984, (0, 0), "MIG-11111111")
LARGE = Card("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 40448, (0, 0), "MIG-22222222")
DIVIDED = H100._replace(uuid="GPU-3333", slices=(SMALL, LARGE))
WHOLE = H100._replace(uuid="GPU-4444")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [SMALL]),
        ("0", [SMALL]),
        ("1", [WHOLE]),
        ("MIG-2222", [LARGE]),
        ("MIG-2222,MIG-1111", [LARGE]),
        ("MIG-5555", []),
    ],
)
def test_a_divided_gpu_is_used_by_one_slice_with_the_slice_s_name_and_memory(
    visible: str | None, expected: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.install(monkeypatch, DIVIDED, WHOLE)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = [(gpu.model, round(gpu.memory_gib * 1024), gpu.capability) for gpu in present_gpus()]
    assert found == [(card.model, card.mib, H100.capability) for card in expected]


def test_the_description_has_the_gpus_that_the_run_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    driver.install(monkeypatch, DIVIDED, WHOLE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2222")
    described = accelerators()
    assert (described["accelerators_per_node"], described["accelerator_model_name"]) == ("1", LARGE.model)
    assert described["accelerator_memory_capacity"] == "40 GiB"
