"""`bertbench config init` without options: the file that it writes for a machine, whose driver a test describes."""

from pathlib import Path

import pytest
import torch

from bertbench.common.errors import RunError
from bertbench.common.json_object import JsonObject
from bertbench.config import System, load_system
from bertbench.loading.inputs import missing_inputs
from bertbench.machine.gpu_support import check_gpus, unsupported
from bertbench.machine.gpus import PresentGpu, present_gpus
from bertbench.plan.dry_run import dry_run
from bertbench.plan.memory import needed_gb
from bertbench.plan.new_system import in_fewest_parts
from tests.conftest import Answer, Printed
from tests.machine.driver import A100_40, H100, RTX_4090, T4, Card, install

FILE = "this_machine.json"
V100_16 = Card("Tesla V100-SXM2-16GB", 16384, (7, 0))
RTX_4080 = Card("NVIDIA GeForce RTX 4080", 16376, (8, 9))
P100 = Card("Tesla P100-PCIE-16GB", 16384, (6, 0))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATADIR", str(tmp_path / "data"))


def larger_parts(system: System) -> System:
    """Return the system with the next larger micro-batch that divides its batch."""
    fewer = max(parts for parts in range(1, system.parts) if system.local_batch % parts == 0)
    return load_system(system.argument, [f"data.gradient_accumulation_steps={fewer}"])


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_the_plan_of_a_shipped_file_fits_16_gb_and_a_larger_micro_batch_does_not(gpus: int) -> None:
    system = load_system(f"gpu_{gpus}")
    assert (system.world_size, system.global_batch_size, system.hardware.division) == (gpus, 448, "closed")
    plan = dry_run(system, 0)
    assert plan.capacity_gb == 16
    assert plan.memory_gb_per_gpu <= 16 < needed_gb(larger_parts(system))


def test_a_shipped_file_has_the_published_hyper_parameters_of_its_batch() -> None:
    ours = load_system("gpu_1")
    published = load_system("dgxa100_n1", ["optimizer.sharded=false"])  # a choice for NVLink, no hyper-parameter
    same = ("model", "optimizer", "schedule", "clip", "loss")
    assert [getattr(ours, name) for name in same] == [getattr(published, name) for name in same]
    assert "dgxa100_n1" in ours.source


@pytest.mark.parametrize(
    ("cards", "micro_batch"),
    [([RTX_4080], 16), ([RTX_4090], 56), ([A100_40], 112), ([H100], 224), ([RTX_4090] * 2, 56), ([H100] * 8, 56)],
    ids=["16 GB", "24 GB", "40 GB", "80 GB", "2 x 24 GB", "8 x 80 GB"],
)
def test_the_micro_batch_is_the_largest_whose_plan_fits(
    cards: list[Card], micro_batch: int, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, *cards)
    printed("config", "init")
    made = load_system(FILE)
    assert (made.world_size, made.global_batch_size, made.samples_per_pass) == (len(cards), 448, micro_batch)
    plan = dry_run(made, 0)
    assert plan.capacity_gb is not None
    assert plan.memory_gb_per_gpu <= plan.capacity_gb
    if made.parts > 1:
        assert needed_gb(larger_parts(made)) > plan.capacity_gb
    assert made.hardware.accelerator_model_name == cards[0].model
    assert (made.precision.compute, made.hardware.division) == ("bf16", "closed")


MICRO_BATCHES = {16: (16, 16, 16, 28), 24: (56, 56, 56, 56), 40: (112, 112, 112, 56), 80: (224, 224, 112, 56)}


@pytest.mark.slow
@pytest.mark.parametrize(("gigabytes", "micro_batches"), MICRO_BATCHES.items())
def test_the_largest_micro_batch_follows_from_memory_and_gpus(gigabytes: int, micro_batches: tuple[int, ...]) -> None:
    for gpus, micro_batch in zip((1, 2, 4, 8), micro_batches, strict=True):
        memory = {"accelerator_memory_capacity": f"{gigabytes} GB"}
        content: JsonObject = {"extends": f"gpu_{gpus}", "hardware": memory, "data": {}}
        made, needed = in_fewest_parts(Path("mine.json"), content, gigabytes)
        assert (made.samples_per_pass, needed <= gigabytes) == (micro_batch, True)


@pytest.mark.parametrize("card", [T4, V100_16], ids=lambda card: card.model)
def test_a_gpu_without_bf16_computes_in_fp16_and_counts_attentions_probabilities(
    card: Card, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, card)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_70", "sm_75", "sm_80"])  # of CUDA 12.6
    printed("config", "init")
    made = load_system(FILE)
    assert (made.precision.compute, made.scales_loss) == ("fp16", True)
    assert made.compute_capability == card.capability
    on_an_a100 = made.model_copy(update={"hardware": made.hardware.model_copy(update={"hw_notes": ""})})
    assert needed_gb(made) > needed_gb(on_an_a100)  # the flash kernel keeps no probability
    assert needed_gb(made) <= card.mib / 1024 < needed_gb(larger_parts(made))


def test_several_gpus_without_bf16_send_gradients_in_fp16(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, T4, T4)
    printed("config", "init")
    made = load_system(FILE)
    assert (made.world_size, made.communication.compression, made.precision.compute) == (2, "fp16", "fp16")


CUDA_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        ((7, 0), False), ((7, 5), True), ((8, 9), True), ((9, 0), True), ((10, 3), True), ((11, 0), False),
        ((12, 1), True), ((13, 0), True),
    ],
)  # fmt: skip
def test_torch_has_kernels_for_later_gpus_of_a_generation_and_ptx_for_all_after_it(
    capability: tuple[int, int], runs: bool
) -> None:
    problem = unsupported([PresentGpu("a card", 16, capability)], CUDA_13)
    assert (problem is None) == runs


def test_a_gpu_that_torch_has_no_kernels_for_is_refused(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, P100)
    said = printed("config", "init", code=2)
    assert "Tesla P100-PCIE-16GB" in said
    assert not Path(FILE).exists()


def test_a_gpu_too_small_for_the_model_is_refused(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Card("NVIDIA GeForce RTX 3050", 6144, (8, 6)))
    said = printed("config", "init", code=2)
    assert "6 GB" in said
    assert not Path(FILE).exists()


def test_a_machine_without_gpus_trains_the_demo(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    made = answer("config", "init")
    assert (made["path"], made["system"]["extends"], made["division"]) == (FILE, "cpu_demo", "open")
    ours, demo = load_system(FILE), load_system("cpu_demo")
    assert (ours.model, ours.data, ours.optimizer) == (demo.model, demo.data, demo.optimizer)


def test_the_next_command_needs_no_download(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, RTX_4090)
    said = printed("config", "init")
    assert "next: bertbench data prepare --system cpu_demo" in said
    (line,) = [line.split() for line in said.splitlines() if "--smoke" in line]
    assert line[:4] == ["bertbench", "train", FILE, "--smoke"]
    system = load_system(FILE, line[5::2])
    assert line[4::2] == ["--set"] * len(line[5::2])
    (problem,) = missing_inputs(system)  # the demo's dataset alone, which the line before makes
    assert "data/cpu_demo: found no dataset" in problem


def test_visible_devices_limit_what_a_run_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [RTX_4090._replace(uuid="GPU-a1"), RTX_4090._replace(uuid="GPU-b2"), H100._replace(uuid="GPU-c3")]
    for visible, gpus in {"1": 1, "0,1": 2, "GPU-c3": 1, "GPU-a,GPU-b": 2, "0,7,1": 1, "": 0}.items():
        install(monkeypatch, *cards)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert len(present_gpus()) == gpus, visible


def test_different_gpus_take_parts_that_fit_the_smallest(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, H100, RTX_4080, H100)
    printed("config", "init")
    made = load_system(FILE)
    assert (made.world_size, made.hardware.accelerator_memory_capacity) == (3, "16 GiB")
    assert needed_gb(made) <= 16 < needed_gb(larger_parts(made))


def test_an_existing_file_is_not_overwritten(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    Path(FILE).write_text("{}")
    assert FILE in printed("config", "init", code=2)
    assert Path(FILE).read_text() == "{}"
    printed("config", "init", "--out", "mine.json")
    assert load_system("mine.json").name == "mine"


def test_a_gpu_system_is_refused_without_gpus_and_can_be_planned(
    printed: Printed, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    for command in ("train", "launch"):
        assert "0 GPUs" in printed(command, "gpu_1", code=2)
    plan = answer("plan", "gpu_1")
    assert plan["memory_gb_per_gpu"] <= plan["memory_capacity_gb"] == 16
    assert all("found no" in problem for problem in plan["problems"])  # the inputs alone


def test_a_run_is_refused_on_gpus_that_cannot_compute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    system = load_system("gpu_1")
    install(monkeypatch, RTX_4090)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(RunError, match="NVIDIA GeForce RTX 4090"):
        check_gpus(system)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    check_gpus(system)
    install(monkeypatch, T4)
    with pytest.raises(RunError, match=r"precision\.compute is bf16, but Tesla T4"):
        check_gpus(system)
    remedy = ["precision.compute=fp16", "optimizer.impl=torch", "compute.compile=none"]
    check_gpus(load_system("gpu_1", remedy))
    in_fp8 = load_system("gpu_1", ["precision.compute=fp8"])
    with pytest.raises(RunError, match=r"precision\.compute is fp8, but Tesla T4"):
        check_gpus(in_fp8)
    install(monkeypatch, RTX_4090)  # 8.9
    check_gpus(in_fp8)
    install(monkeypatch, P100)
    with pytest.raises(RunError, match="Tesla P100"):
        check_gpus(load_system("gpu_1", remedy))
