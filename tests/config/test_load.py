from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.errors import ConfigError
from bertbench.common.evaluation import mlperf_evaluation_interval
from bertbench.common.paths import SYSTEMS
from bertbench.config import load_system
from bertbench.config.load import schema
from tests.conftest import Tiny, write_json
from tests.tiny import TINY_SYSTEM

Refused = Callable[..., list[str]]


@pytest.fixture
def refused(tiny: Tiny) -> Refused:
    """Return the lines of the error for these options."""

    def call(*overrides: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            tiny(*overrides)
        return str(caught.value).splitlines()

    return call


FP8 = "precision.compute=fp8 model.hidden_size=16 model.feed_forward_size=32"
ON_GPUS, GRAPHS = "launch.device=cuda hardware.accelerators_per_node=2", "compute.compile=graphs data.equal_counts=true"
APEX = f"{ON_GPUS} optimizer.name=lamb optimizer.impl=apex"
REFUSED = {
    "model.layers=-1": "model.layers",
    "model.layerz=2": "did you mean layers",
    "training.lr=1": "training",
    "learning_rate=1e-3": "did you mean optimizer.learning_rate",
    "data.global_batch_size=13": "13",
    "data.gradient_accumulation_steps=4": "data.gradient_accumulation_steps 4",
    "data.balance=magic": "data.balance",
    "data.strata_edges=[256,128]": "data.strata_edges",
    "data.balance=stratified data.strata_quotas=[3,1,1,2]": "7",
    "data.balance=stratified data.strata_quotas=[3,3]": "2 quotas",
    "data.balance=stratified data.strata_edges=[9,28] data.strata_quotas=[3,3]": "data.strata_edges",
    "data.balance=stratified data.strata_quotas=[-1,3,3,1]": "data.strata_quotas.0",
    "loss.normalize=rank": "data.equal_counts",
    "data.recipe.vocab_size=98": "data.recipe.vocab_size",
    "model.attention_heads=3": "model.attention_heads",
    "model.initial_weights=mimetic model.hidden_size=13 model.attention_heads=1": "13",
    "launch.device=cuda": "launch.ranks_per_node",
    f"{ON_GPUS} optimizer.impl=apex optimizer.name=adam": "apex",
    "schedule.warmup_steps=7": "schedule.warmup_steps 7",
    "schedule.warmup_steps=5 schedule.decay_steps=5 schedule.decay_from=warmup_steps": "schedule.decay_steps",
    "communication.buckets=3 communication.bucket_mb=2": "gradient buckets",
    f"{GRAPHS} clip.mode=bucket clip.parts=each data.gradient_accumulation_steps=3": "clip.parts",
    "schedule.max_steps": "NAME=VALUE",
    "data.path=/l\udcff\udce9g": "UTF-8",
    "schedule.max_steps.x=1": "max_steps",
    f"{APEX} communication.compression=fp16": "fp16",
    "optimizer.name=muon optimizer.impl=triton": "optimizer.impl triton",
    "optimizer.name=muon parallel.fully_shard=true": "optimizer.name muon",
    "optimizer.name=muon optimizer.sharded=true": "optimizer.name muon",
    f"{GRAPHS} precision.compute=fp16": "precision.compute fp16",
    "precision.compute=fp8": "model.hidden_size",
    f"{FP8} communication.compression=fp16": "communication.compression fp16",
    f"{FP8} parallel.fully_shard=true": "precision.compute fp8",
    f"{APEX} optimizer.sharded=true": "optimizer.impl apex",
    "optimizer=lion": "a section",
    "schedule.warmup_steps=10 schedule.start_warmup_step=-3": "schedule.warmup_steps",
    "schedule.warmup_steps=2 schedule.start_warmup_step=1": "negative learning rate; set it to at most 0",
    "scale_from_batch=6 schedule.warmup_steps=3 schedule.decay_steps=5 schedule.decay_from=warmup_steps": "at step 2",
    "scale_from_batch=6 schedule.decay_steps=1": "schedule.decay_steps 1 would become 0",
    "launch.ranks_per_node=257 data.global_batch_size=257 communication.compression=bf16": "257 ranks",
    "launch.ranks_per_node=2049 data.global_batch_size=2049 communication.compression=fp16": "2049 ranks",
}


@pytest.mark.parametrize(("compression", "most"), [("bf16", 256), ("fp16", 2048), ("none", 4096)])
def test_16_bits_sum_over_as_many_ranks_as_they_can_count(tiny: Tiny, compression: str, most: int) -> None:
    ranks = (f"launch.ranks_per_node={most}", f"data.global_batch_size={most}")
    assert tiny(*ranks, f"communication.compression={compression}").world_size == most


@pytest.mark.parametrize(("overrides", "named"), REFUSED.items())
def test_a_bad_setting_is_an_error_of_one_line_that_names_it(refused: Refused, overrides: str, named: str) -> None:
    (line,) = refused(*overrides.split())
    assert named in line


INVALID = {
    "model.layers": ("two", "model.layers: "),
    "loss.normalise": ("rank", "loss.normalise: "),
    "schedule.max_steps": (0, "schedule.max_steps: "),
}
CONTRADICTING = {
    "data.global_batch_size": (13, "global batch 13 "),
    "model.attention_heads": (3, "model.hidden_size 14 "),
    "optimizer.impl": ("apex", "optimizer.impl apex "),
}


@pytest.mark.parametrize("mistakes", [INVALID, CONTRADICTING], ids=["invalid", "contradicting"])
def test_several_mistakes_are_as_many_messages_that_name_the_options_or_the_file(
    refused: Refused, tmp_path: Path, mistakes: dict[str, tuple[object, str]]
) -> None:
    lines = refused(*(f"{name}={value}" for name, (value, _) in mistakes.items()))
    assert len(lines) == len(mistakes)
    for name, (value, expected) in mistakes.items():
        assert [line for line in lines if line.startswith(f"--set '{name}={value}': {expected}")]
    sections: dict[str, Any] = {}
    for name, (value, _) in mistakes.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    child = write_json(tmp_path / "child.json", {**TINY_SYSTEM, **merged_over_tiny(sections)})
    with pytest.raises(ConfigError) as caught:
        load_system(child)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(mistakes)
    for _, expected in mistakes.values():
        assert [line for line in lines if line.startswith(f"{child}: {expected}")]


def merged_over_tiny(sections: dict[str, Any]) -> dict[str, Any]:
    return {name: {**TINY_SYSTEM.get(name, {}), **section} for name, section in sections.items()}


def test_mistakes_of_several_files_are_reported_together(tmp_path: Path) -> None:
    base = write_json(tmp_path / "base.json", {**TINY_SYSTEM, "clip": {"max_norm": 0}})
    child = write_json(tmp_path / "child.json", {"extends": "base", "model": {"layers": "two"}})
    with pytest.raises(ConfigError) as caught:
        load_system(child, ["schedule.max_steps=none"])
    origins = [line.partition(": ")[0] for line in str(caught.value).splitlines()]
    assert sorted(origins) == sorted([base, child, "--set 'schedule.max_steps=none'"])


def test_what_goes_together_is_checked_once_every_setting_is_valid(refused: Refused) -> None:
    lines = refused("data.global_batch_size=-13", "launch.ranks_per_node=0.5", "parallel.tensor=3")
    assert len(lines) == 2  # whether 3 divides the ranks can't be known


NO_SYSTEMS = {
    "{": "JSON",
    "[]": "an object",
    '{"extends": ["cpu_demo", null]}': "extends",
    '{"extends": "cpu_dmo"}': "did you mean cpu_demo",
}


@pytest.mark.parametrize(("content", "named"), NO_SYSTEMS.items())
def test_a_file_that_is_not_a_system_is_one_error(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=f"broken.json: .*{named}"):
        load_system(str(path))


def test_a_system_file_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json"):
        load_system(str(tmp_path / "gone.json"))


def test_a_system_file_may_have_the_name_of_a_runs_record(tmp_path: Path) -> None:
    path = write_json(tmp_path / "config.json", TINY_SYSTEM)
    assert load_system(str(path)).name == "config"


def test_a_base_file_is_merged_key_by_key(tmp_path: Path) -> None:
    write_json(tmp_path / "base.json", TINY_SYSTEM)
    system = load_system(write_json(tmp_path / "child.json", {"extends": "base", "model": {"layers": 3}}))
    assert (system.name, system.model.layers, system.model.hidden_size) == ("child", 3, 14)


def test_an_extended_file_is_next_to_the_file_or_comes_with_the_project(tmp_path: Path) -> None:
    content = {"extends": ["dgxa100_n2", "base/open"], "clip": {"mode": "none"}}
    path = write_json(tmp_path / "dgxa100_n2.json", content)
    system = load_system(path)  # a file isn't beside itself: the shipped one is meant
    assert (system.world_size, system.optimizer.name, system.clip.mode) == (16, "adam", "none")
    (tmp_path / "base").mkdir()
    write_json(tmp_path / "base" / "open.json", {"hardware": {"submitter": "beside"}})
    assert load_system(path, ["clip.mode=after"]).hardware.submitter == "beside"


def test_files_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"extends": "b"})
    with pytest.raises(ConfigError, match=r"b\.json"):
        load_system(write_json(tmp_path / "b.json", {"extends": "a"}))


def test_overrides_replace_values_and_either_batch_replaces_the_other(tiny: Tiny) -> None:
    system = tiny("data.local_batch=5", "evaluation.target=0.25")
    assert (system.global_batch_size, system.evaluation.target) == (10, 0.25)
    muon = load_system("cpu_demo", ["optimizer.muon.momentum=0.9", "optimizer.muon.ns_steps=3"]).optimizer.muon
    assert (muon.momentum, muon.ns_steps) == (0.9, 3)


@pytest.mark.parametrize(
    ("batch", "interval"),
    [(448, 150_000), (2_171, 150_000), (4_343, 175_000), (4_608, 200_000), (6_912, 225_000), (16_384, 325_000)],
)
def test_the_evaluation_interval_is_mlperfs(batch: int, interval: int) -> None:
    assert mlperf_evaluation_interval(batch) == interval


def test_evaluations_come_every_interval_rounded_up_to_a_step_and_at_the_limit(tiny: Tiny) -> None:
    # batch 12, interval 25, 6 steps
    assert list(tiny().blocks()) == [(0, 3), (3, 5), (5, 6)]  # after 36, 60 and 72 samples
    assert list(tiny("evaluation.max_samples=30").blocks()) == [(0, 3)]
    assert list(tiny("evaluation.interval_samples=1").blocks()) == [(s, s + 1) for s in range(6)]


def test_a_resumed_run_takes_up_the_blocks_whose_evaluation_may_be_due(tiny: Tiny) -> None:
    # (0, 3), (3, 5), (5, 6) from the start
    system = tiny()
    assert list(system.blocks(4)) == [(3, 5), (5, 6)]
    assert list(system.blocks(5)) == [(3, 5), (5, 6)], "after its last step: killed before or in the evaluation"
    assert list(system.blocks(6)) == [(5, 6)]


def test_the_schema_file_is_current() -> None:
    assert (SYSTEMS / "schema.json").read_text() == schema(), (
        "run: bertbench config schema > benchmarks/bert/systems/schema.json"
    )
