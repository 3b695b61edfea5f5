"""`bertbench config init` for named nodes and GPUs: hyper-parameters, batch and division, and parts that fit."""

import json
from pathlib import Path

import pytest

from bertbench.common.errors import ConfigError
from bertbench.config import load_system
from bertbench.machine.describe import describe
from bertbench.plan.memory import needed_gb
from bertbench.plan.new_system import published_system
from tests.conftest import Answer, Printed
from tests.machine.driver import H100, install

CARDS = ("config", "init", "--nodes", "4", "--gpus", "4", "--gpu-model", "h100-pcie")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_is_closed_and_every_command_takes_it(answer: Answer, printed: Printed) -> None:
    said = printed(*CARDS, "--out", "mine.json")
    system, published = load_system("mine.json"), load_system("dgxa100_n2")  # both have 16 GPUs
    assert (system.world_size, system.hardware.number_of_nodes, system.launch.device) == (16, 4, "cuda")
    assert system.hardware.accelerator_model_name == "NVIDIA H100-PCIe-80GB"
    assert system.hardware.division == "closed"
    assert system.global_batch_size == published.global_batch_size
    assert system.schedule == published.schedule
    assert "dgxa100_n2" in said
    assert published.source in system.source
    assert needed_gb(system) < 80
    printed("estimate", "mine.json")
    for on in ("local", "slurm"):
        printed("launch", "mine.json", "--on", on, "--dry-run")
    problems = answer("plan", "mine.json")["problems"]
    assert [problem for problem in problems if "found no" not in problem] == []  # no data here: nothing else


@pytest.mark.parametrize(
    ("gpus", "name"),
    [(1, "dgxa100_n1"), (8, "dgxa100_n1"), (3, "dgxh200_n1"), (24, "dgxa100_n4"), (1024, "dgxa100_n128")],
)
def test_the_nearest_published_system_whose_batch_divides_gives_the_hyper_parameters(gpus: int, name: str) -> None:
    system = published_system(gpus)
    assert system.name == name
    assert system.global_batch_size % gpus == 0


def test_a_batch_that_divides_among_no_number_of_gpus_is_refused() -> None:
    with pytest.raises(ConfigError, match="among 5"):
        published_system(5)


@pytest.mark.parametrize("name", ["dgxa100_n8", "dgxa100_n8_open"])
def test_from_takes_a_systems_hyper_parameters_and_batch(name: str, printed: Printed) -> None:
    printed(*CARDS, "--from", name, "--out", "mine.json")
    theirs, ours = load_system(name), load_system("mine.json")
    whole = theirs.optimizer.model_copy(update={"sharded": False})  # a choice for 64 GPUs, not a hyper-parameter
    assert (ours.optimizer, ours.schedule, ours.clip) == (whole, theirs.schedule, theirs.clip)
    assert ours.evaluation.max_samples == theirs.evaluation.max_samples
    assert (ours.global_batch_size, ours.hardware.division) == (theirs.global_batch_size, theirs.hardware.division)
    assert ours.launch.walltime_minutes == 4 * theirs.launch.walltime_minutes  # a quarter of the GPUs


@pytest.mark.parametrize(("nodes", "compression"), [(32, "bf16"), (64, "none")])
def test_more_ranks_than_bf16_can_sum_over_send_fp32(nodes: int, compression: str, printed: Printed) -> None:
    printed(
        "config", "init", "--nodes", nodes, "--gpus", 8, "--gpu-model", "a100-sxm", "--from", "dgxa100_n8",
        "--out", "mine.json",
    )  # fmt: skip
    assert load_system("mine.json").communication.compression == compression


def test_accumulation_makes_a_batch_fit_the_named_memory(printed: Printed) -> None:
    printed("config", "init", "--from", "dgxa100_n1", "--gpus", 2, "--gpu-model", "some card", "--memory", 40)
    made = load_system("cluster.json")
    assert (made.world_size, made.global_batch_size, made.hardware.accelerator_model_name) == (2, 448, "some card")
    fewer = max(parts for parts in range(1, made.parts) if made.local_batch % parts == 0)
    larger_parts = load_system("cluster.json", [f"data.gradient_accumulation_steps={fewer}"])
    assert needed_gb(larger_parts) > 40 >= needed_gb(made)


def test_a_card_of_unknown_memory_takes_its_samples_at_once(answer: Answer) -> None:
    made = answer("config", "init", "--gpus", 8, "--gpu-model", "some card")
    assert made["system"]["data"]["gradient_accumulation_steps"] == 1
    assert any("unknown" in note and "give --memory GB" in note for note in made["notes"])


def test_a_node_of_the_cluster_describes_itself(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, *[H100] * 4)
    processor = describe()["host_processor_model_name"]
    hardware = answer("config", "init", "--nodes", 2)["system"]["hardware"]
    assert (hardware["accelerators_per_node"], hardware["accelerator_model_name"]) == (4, H100.model)
    assert hardware["host_processor_model_name"] == processor
    of_other_nodes = answer("config", "init", "--nodes", 2, "--gpus", 8, "--out", "others.json")["system"]["hardware"]
    assert of_other_nodes["accelerators_per_node"] == 8
    assert "host_processor_model_name" not in of_other_nodes


REFUSED = {
    "--gpus 4": "--gpu-model",
    "--gpu-model h100-pcie": "--gpus",
    "--memory 40": "--gpus",
    "--gpus 4 --gpu-model h100-pcie --memory nan": "--memory nan",
    "--gpus 8 --gpu-model h100-pcie --memory 4": "4 GB",
    "--gpus 5 --gpu-model h100-pcie --from dgxa100_n1": "448",
    "--gpus 4 --gpu-model h100-pcie --from cpu_demo": "cpu_demo",
    "--gpus 4 --gpu-model h100-pcie --out there.json": "there.json",
    "--gpus 4 --gpu-model h100-pcie --out there": "--out there",
}


@pytest.mark.parametrize(("words", "expected"), REFUSED.items())
def test_an_impossible_system_is_refused(
    words: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    install(monkeypatch)
    (tmp_path / "there.json").write_text("{}")
    assert expected in printed("config", "init", *words.split(), code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
    assert json.loads((tmp_path / "there.json").read_text()) == {}
