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
    "model.layers=-1": "model.layers: found -1",
    "model.layerz=2": "model.layerz: unknown key; did you mean layers?",
    "training.lr=1": "--set 'training.lr=1': training: unknown key",
    "hardware.nodes=4": "did you mean number_of_nodes?",
    "learning_rate=1e-3": "did you mean optimizer.learning_rate?",
    "hardware.xyzzy=1": "expected one of accelerator_frequency",
    "optimizer.learning_rate=fast": "optimizer.learning_rate: found 'fast'",
    "data.global_batch_size=-4": "data.global_batch_size: found -4",
    "data.global_batch_size=13": "batch 13 is not a multiple of 2 ranks; set data.local_batch, or choose 12 or 14",
    "data.gradient_accumulation_steps=4": "local batch 6 is not a multiple of data.gradient_accumulation_steps 4",
    "data.balance=magic": "data.balance: found 'magic'",
    "data.strata_edges=[256,128]": "data.strata_edges [256, 128] must increase",
    "data.balance=stratified data.strata_quotas=[3,1,1,2]": "sum to 7, but a rank has 6 samples; choose quotas",
    "data.balance=stratified data.strata_quotas=[3,3]": "has 2 quotas for the 4 strata of data.strata_edges; give one",
    "data.balance=stratified data.strata_edges=[9,28] data.strata_quotas=[3,3]":
        "would never draw samples of more than 28 tokens, the last of data.strata_edges; raise that to",
    "data.balance=stratified data.strata_quotas=[-1,3,3,1]": "data.strata_quotas.0: found -1",
    "loss.normalize=rank": "data.balance planned gives ranks different numbers of samples; set data.equal_counts",
    "data.recipe.vocab_size=98": "data.recipe.vocab_size 98 is larger than model.vocab_size 97",
    "model.attention_heads=3": "model.hidden_size 14 is not a multiple of model.attention_heads 3",
    "model.initial_weights=mimetic model.hidden_size=13 model.attention_heads=1": "13 is odd; choose an even one",
    "launch.device=cuda": "launch.ranks_per_node 2 differs from hardware.accelerators_per_node 0",
    "optimizer.impl=apex optimizer.name=lamb": "apex has kernels for lamb on cuda only, not for lamb on cpu; set it",
    f"{ON_GPUS} optimizer.impl=apex optimizer.name=adam": "kernels for lamb on cuda only, not for adam on cuda; set it",
    "schedule.warmup_steps=7": "schedule.warmup_steps 7 would end after the run (schedule.max_steps 6); set",
    "schedule.warmup_steps=5 schedule.decay_steps=5 schedule.decay_from=warmup_steps":
        "the decay would begin at step 5 and end at step 5; raise schedule.decay_steps above 5",
    "communication.buckets=3 communication.bucket_mb=2": "both decide the number of gradient buckets; set one of them",
    "clip.divisor=0": "clip.divisor: found 0",
    f"{GRAPHS} clip.mode=bucket clip.parts=each data.gradient_accumulation_steps=3": "set clip.parts to sum, or",
    "schedule.first_step=2": "schedule.first_step: found 2",
    "schedule.max_steps": "expected NAME=VALUE",
    "data.path=/l\udcff\udce9g": "settings are UTF-8, but this path isn't",
    "schedule.max_steps.x=1": "max_steps is a value, not a section",
    "communication.compression=int8": "communication.compression: found 'int8'",
    f"{APEX} communication.compression=fp16": "fp16 gradients need to skip steps",
    "optimizer.name=muon optimizer.impl=triton": "optimizer.impl triton has kernels for adam and lamb",
    "optimizer.name=muon parallel.fully_shard=true": "optimizer.name muon needs whole models",
    "optimizer.impl=triton": "on cuda only, not for adam on cpu; set it to torch",
    f"{GRAPHS} precision.compute=fp16": "precision.compute fp16 can't be replayed",
    "precision.compute=fp8": "fp8 multiplies matrices whose widths are multiples of 16, but model.hidden_size is 14",
    "precision.compute=fp8 model.hidden_size=16": "model.feed_forward_size is 23; choose a multiple, or",
    f"{FP8} communication.compression=fp16": "communication.compression fp16 scales the loss, and fp8's own scales",
    f"{FP8} parallel.fully_shard=true": "precision.compute fp8 needs whole models",
    f"{GRAPHS} communication.compression=fp16": "communication.compression fp16 can't be replayed",
    f"{APEX} optimizer.sharded=true": "optimizer.impl apex needs whole gradients",
    "optimizer=lion": "found 'lion', expected a section; set one of optimizer.name, optimizer.learning_rate",
    "optimizer.name=lam": "input should be 'adam', 'lamb'",
    "schedule.warmup_steps=10 schedule.start_warmup_step=-3": "set schedule.warmup_steps to at most 9",
    **{
        f"launch.ranks_per_node={ranks} data.global_batch_size={ranks} communication.compression={name}": (
            f"communication.compression {name} sums over {ranks} ranks, but beyond {ranks - 1}, what"
        )
        for name, ranks in (("bf16", 257), ("fp16", 2049))
    },
}  # fmt: skip


@pytest.mark.parametrize(("compression", "most"), [("bf16", 256), ("fp16", 2048), ("none", 4096)])
def test_16_bits_sum_over_as_many_ranks_as_they_can_count(tiny: Tiny, compression: str, most: int) -> None:
    ranks = (f"launch.ranks_per_node={most}", f"data.global_batch_size={most}")
    assert tiny(*ranks, f"communication.compression={compression}").world_size == most


@pytest.mark.parametrize(("overrides", "expected"), REFUSED.items())
def test_a_bad_setting_is_an_error_of_one_line_that_says_what_was_found_and_what_to_do(
    refused: Refused, overrides: str, expected: str
) -> None:
    (line,) = refused(*overrides.split())
    assert expected in line


INVALID = {
    "model.layers": ("two", "model.layers: found 'two'"),
    "loss.normalise": ("rank", "loss.normalise: unknown key; did you mean normalize?"),
    "schedule.max_steps": (0, "schedule.max_steps: found 0"),
}
CONTRADICTING = {
    "data.global_batch_size": (13, "global batch 13 is not a multiple of 2 ranks"),
    "model.attention_heads": (3, "model.hidden_size 14 is not a multiple of model.attention_heads 3"),
    "optimizer.impl": ("apex", "optimizer.impl apex has kernels for lamb on cuda only, not for adam on cpu; set it to"),
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
    "{": "broken.json: invalid JSON: .*; a system file is a JSON object: correct it",
    "[]": "input should be an object",
    '{"extends": 5}': "broken.json: extends: found 5; expected the name of a system, or a list of names",
    '{"extends": ["cpu_demo", null]}': r"found \['cpu_demo', None\]; expected the name of a system",
    '{"extends": "cpu_dmo"}': "broken.json: extends 'cpu_dmo', but found no cpu_dmo.json .*; did you mean cpu_demo?",
}


@pytest.mark.parametrize(("content", "expected"), NO_SYSTEMS.items())
def test_a_file_that_is_not_a_system_is_one_error(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=expected):
        load_system(str(path))


def test_a_system_file_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.json: found no such file; check the path of the system file"):
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
    with pytest.raises(ConfigError, match="extends itself"):
        load_system(write_json(tmp_path / "b.json", {"extends": "a"}))


def test_overrides_replace_values_and_either_batch_replaces_the_other(tiny: Tiny) -> None:
    system = tiny("data.local_batch=5", "evaluation.target=0.25")
    assert (system.global_batch_size, system.evaluation.target) == (10, 0.25)
    muon = load_system("cpu_demo", ["optimizer.muon.momentum=0.9", "optimizer.muon.ns_steps=3"]).optimizer.muon
    assert (muon.momentum, muon.ns_steps) == (0.9, 3)


@pytest.mark.parametrize(
    ("batch", "interval"),
    [(448, 150_000), (2_171, 150_000), (4_343, 175_000), (4_608, 200_000), (6_144, 200_000), (6_912, 225_000),
     (8_192, 225_000), (12_288, 275_000), (13_056, 300_000), (16_384, 325_000)],
)  # fmt: skip
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
