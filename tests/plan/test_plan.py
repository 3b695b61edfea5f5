"""`bertbench plan`: its figures for a rank, against a real rank."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertbench.cli.main import main
from bertbench.config import System, load_system, pre_training_names
from bertbench.data.store.columns import lengths_of, masked_of
from bertbench.distributed.world import World
from bertbench.loading.bins import BinSampler
from bertbench.loading.inputs import missing_inputs
from bertbench.loading.sampler import Sampler, make_planner
from bertbench.plan.dry_run import count_rank, dry_run
from bertbench.plan.memory import activation_bytes, memory_gb, needed_gb
from bertbench.plan.planned_steps import index_to_plan
from bertbench.plan.step_load import Microbatch, largest_part_in_run
from tests.conftest import Answer, Captured, Printed, Tiny
from tests.ranks import run_ranks
from tests.training.steps import whole_trainer


def buckets_and_moments(world: World, system: System) -> tuple[tuple[int, ...], int]:
    with whole_trainer(system, world) as trainer:
        names = {parameter: name for name, parameter in trainer.model.named_parameters()}
        moments = trainer.optimizer.moments(names).values()
        held = sum(rectangle.tensor.nbytes for moment in moments for rectangle in moment.rectangles)
        return trainer.describe_step().bucket_elements, held


@pytest.mark.parametrize(
    "clip", ["bucket", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("after", "before"))]
)
def test_a_dry_run_rank_has_the_buckets_and_the_optimizer_state_of_the_real_one(tiny: Tiny, clip: str) -> None:
    system = tiny("communication.bucket_mb=0.003", f"clip.mode={clip}", "optimizer.sharded=true")
    real = run_ranks(2, buckets_and_moments, system)
    for rank in (0, 1):
        counted = count_rank(system, rank)
        assert len(counted.bucket_elements) > 3
        assert (counted.bucket_elements, counted.optimizer_bytes) == real[rank]
    assert real[0][1] != real[1][1]


def test_a_rank_keeps_the_rounded_gradients_that_it_sends(tiny: Tiny) -> None:
    whole, rounded = (count_rank(tiny(f"communication.compression={kind}"), 0) for kind in ("none", "bf16"))
    assert rounded.optimizer_bytes - whole.optimizer_bytes == 2 * whole.parameters


@pytest.mark.parametrize(("compression", "element_bytes"), [("none", 4), ("bf16", 2), ("fp16", 2)])
def test_every_format_of_gradients_has_a_dry_run(tiny: Tiny, compression: str, element_bytes: int) -> None:
    system = tiny("hardware.number_of_nodes=3", f"communication.compression={compression}")
    counted = count_rank(system, 5)
    assert sum(counted.bucket_elements) == counted.parameters
    assert counted.bytes_per_step == element_bytes * counted.parameters


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (29, Microbatch(7, 41)),  # 3 and 5 tokens: 4 + 3 x 1; 9 and 25 pairs: 17 + 3 x 8
        (6, Microbatch(6, 36)),  # one sequence of full length
    ],
)
def test_one_of_a_run_s_parts_is_as_large_as_the_largest_within_full_sequences(
    longest: int, expected: Microbatch
) -> None:
    parts_of_run = 741  # one in 741 of a normal distribution lies more than 3 standard deviations above the mean
    largest = Microbatch.largest_in_run([np.array([3]), np.array([5])], longest, parts_of_run)
    assert largest == pytest.approx(expected, abs=0.01)


def test_the_warm_up_computes_the_largest_part_beside_a_copy_of_the_weights(tiny: Tiny) -> None:
    system = tiny("model.layers=5")
    memory = memory_gb(system)
    assert memory["activations"] == activation_bytes(system, largest_part_in_run(system)) / 1e9
    assert memory["warm_up_copy"] == memory["weights"]


def test_an_evaluation_beside_recorded_steps_counts_if_it_needs_more_than_a_copy_of_the_weights() -> None:
    recorded, eager = (memory_gb(load_system("dgxa100_n1", words)) for words in ((), ("compute.compile=default",)))
    # of 128 samples of 512 tokens: the residual, and in bf16 query, key, value, attention's output, the feed-forward
    # input, and GELU's input and output
    assert recorded["evaluation"] == 128 * 512 * 2 * (6 * 1024 + 2 * 4096) / 1e9
    assert recorded["evaluation"] > eager["warm_up_copy"] == eager["weights"]
    assert not {"warm_up_copy", "evaluation"} <= recorded.keys()
    few = load_system("dgxa100_n1", ["evaluation.batch_size=64"])
    assert memory_gb(few) == eager


@pytest.mark.parametrize("parts", [28, 8])
def test_a_plan_counts_the_largest_size_that_a_run_records_within_a_twentieth(parts: int) -> None:
    steps = 400
    settings = (f"data.gradient_accumulation_steps={parts}", f"schedule.max_steps={steps}")
    system = load_system("gpu_1", settings)
    entries_N, _ = index_to_plan(system, training=None)
    index: Any = SimpleNamespace(
        lengths=lambda ids: lengths_of(entries_N[ids]), masked=lambda ids: masked_of(entries_N[ids])
    )
    sampler = Sampler(index, make_planner(system, entries_N, seed=7), parts, system.loss.normalize)
    largest = BinSampler.of(sampler, range(steps), longest=512).bins.all[-1]
    recorded = activation_bytes(system, Microbatch(largest.tokens, largest.tokens * 400)) / 1e9
    assert dry_run(system, 0).memory_gb["activations"] == pytest.approx(recorded, rel=0.05)


@pytest.mark.parametrize("samples", [192, 224])
def test_the_largest_published_batches_of_a_gpu_fit_80_gb(samples: int) -> None:
    alone = ("data.gradient_accumulation_steps=2", f"data.global_batch_size={2 * samples}")
    for name, settings in (("dgxa100_n1", (f"data.global_batch_size={8 * samples}",)), ("gpu_1", alone)):
        system = load_system(name, settings)
        assert system.samples_per_pass == samples
        assert needed_gb(system) < 80
        assert dry_run(system, 0).memory_gb_per_gpu < 80


def test_a_plan_states_the_facts_of_the_system_file_and_the_data(tiny_file: str, answer: Answer) -> None:
    plan = answer("plan", tiny_file, "--strict", "--rank", 1)
    assert {"system": "tiny", "gpus": 2, "rank": 1, "global_batch_size": 12, "problems": []}.items() <= plan.items()
    # 25 samples after 3 steps of 12, 50 after 5, and the end
    assert (plan["evaluation_interval_samples"], plan["evaluation_steps"]) == (25, [3, 5, 6])
    assert 0.8 < plan["load_efficiency"] <= 1
    assert plan["bytes_per_step"] == 4 * plan["parameters"]
    assert plan["memory_gb_per_gpu"] == pytest.approx(sum(plan["memory_gb"].values()), abs=0.003)
    assert plan["lengths_from"].endswith("data")


def test_a_plan_names_what_is_missing_and_only_strict_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path))
    words = ["plan", "cpu_demo", "--set", "model.checkpoint=none.safetensors"]
    said = printed(*words)
    assert printed(*words, "--strict", code=1) == said
    for missing in (f"{tmp_path}/cpu_demo", "none.safetensors"):
        assert missing in said
    assert "--rank 2" in printed("plan", "cpu_demo", "--rank", "2", code=2)


@pytest.mark.parametrize("there", [(), ("wiki",)])
def test_all_missing_inputs_are_named_at_once_with_complete_commands(
    there: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in there:
        (tmp_path / name).mkdir()
    problems = missing_inputs(load_system("dgxa100_n1"))
    names = [name for name in ("wiki", "wiki_eval", "phase1.safetensors") if name not in there]
    assert [problem.partition(": ")[0] for problem in problems] == [str(tmp_path / name) for name in names]
    commands = [command for problem in problems for command in problem.split("`")[1::2]]
    for command in commands:
        program, *words = shlex.split(command)
        assert (program, main(words)) == ("bertbench", 2)  # the inputs are missing; argparse refuses no word of it
        assert capsys.readouterr().err.startswith("bertbench: ")
    all_words = " ".join(commands)
    assert ("--select-eval 10000" in all_words) == ("wiki_eval" in names)
    assert ("data shuffle" in all_words) == ("wiki" in names)


def test_a_plan_says_that_its_memory_does_not_fit_the_gpu(tiny_file: str, printed: Printed) -> None:
    words = ["plan", tiny_file, "--set", "launch.device=cuda", "--set", "hardware.accelerators_per_node=2"]
    assert "doesn't fit" in printed(*words, "--set", "hardware.accelerator_memory_capacity=0.0001 GB")


@pytest.mark.slow
def test_more_memory_than_a_gpu_has_is_a_problem_that_accumulation_solves(printed: Printed) -> None:
    words = ["plan", "dgxa100_n1", "--set", "data.global_batch_size=3200"]
    assert "but has 80 GB; raise data.gradient_accumulation_steps" in printed(*words)
    assert "but has 80 GB" not in printed(*words, "--set", "data.gradient_accumulation_steps=2")


@pytest.mark.slow
@pytest.mark.parametrize("name", pre_training_names())
def test_every_system_can_be_planned_at_its_true_size(name: str, answer: Answer) -> None:
    system = load_system(name)
    plan = answer("plan", name, "--rank", system.world_size - 1)
    assert (plan["gpus"], plan["global_batch_size"]) == (system.world_size, system.global_batch_size)
    assert sum(plan["bucket_elements"]) == plan["parameters"]
    assert plan["load_efficiency"] > 0.9
    assert plan["memory_gb_per_gpu"] > 16e-9 * plan["parameters"]  # weights, gradients, two moments
    if system.launch.device == "cuda":  # `estimate` warns by a sum that needs no dry run
        # which takes ranks of any balance method for planned ones: strata make the largest part smaller
        assert 0.95 < needed_gb(system) / plan["memory_gb_per_gpu"] < 1.1
    assert not [problem for problem in plan["problems"] if "data.balance" in problem or "expected" in problem]


def test_a_plan_has_rates_quotas_buckets_and_the_limit_of_a_bucket(tiny_file: str, answer: Answer) -> None:
    settings = (
        "data.balance=stratified", "data.strata_edges=[28,29]", "data.strata_quotas=[5,1]", "clip.mode=bucket",
        "clip.parts=each", "clip.divisor=4", "clip.max_norm=3", "communication.buckets=5",
        "data.gradient_accumulation_steps=2", "schedule.warmup_steps=2", "schedule.decay_from=warmup_steps",
        "schedule.first_step=1", "schedule.start_warmup_step=-1",
    )  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    plan = answer("plan", tiny_file, *words)
    assert (len(plan["bucket_elements"]), plan["clip_limit"]) == (5, 1.5)  # 3 / sqrt(4)
    assert (plan["strata"]["edges"], plan["strata"]["quotas"]) == ([28, 29], [5, 1])
    assert sum(plan["strata"]["shares_of_batch"]) == pytest.approx(6, abs=0.001)
    # s is 1 at step 0: warm-up, begun at -1, is over, and the decay of four steps from 2 on gives 1 + 1/4
    assert plan["learning_rate_by_step"] == pytest.approx({"0": 0.0125, "1": 0.01, "2": 0.0075, "5": 0.0}, abs=1e-9)
    assert plan["memory_gb"]["clipped_parts"] == plan["memory_gb"]["gradients"]
