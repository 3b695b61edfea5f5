"""Every system file against MLPerf's rules, the official checkers and the published results that it names."""

import csv
import json
import re
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mlperf_logging.mllog import constants
from mlperf_logging.system_desc_checker.system_desc_checker import check_system_desc

from bertbench.checkpoint.tensor_names import pieces
from bertbench.common.errors import ConfigError, RunError
from bertbench.common.published_results import TABLE
from bertbench.config import System, load_system, system_names
from bertbench.config.system import scaled_to_its_batch
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.plan.estimate import reference_points
from bertbench.runs.mlperf_log import Clock, MlperfLog, Run
from bertbench.runs.submission import log_submission, log_weights
from compliance import judge_log
from tests.conftest import write_json
from tests.ranks import run_ranks

GPU_SYSTEMS = [name for name in system_names() if name.startswith("dgx")]
CLOSED = [name for name in GPU_SYSTEMS if load_system(name).hardware.division == "closed"]


@pytest.mark.parametrize("name", CLOSED)
def test_a_closed_file_can_be_judged_by_reference_convergence_points_and_trains_long_enough(name: str) -> None:
    system, points = load_system(name), reference_points()
    # below 448 the smallest point counts, above the largest a new one would be needed
    assert 448 <= system.global_batch_size <= max(points)
    nearest = min(points, key=lambda batch: abs(batch - system.global_batch_size))
    assert system.max_steps * system.global_batch_size > 1.1 * points[nearest][0]


@pytest.mark.parametrize("name", CLOSED)
def test_hyper_parameters_and_clipping_are_those_of_the_result_or_the_point_that_the_file_names(name: str) -> None:
    system = load_system(name)
    source = system.source
    if "reference convergence point" in source:
        point = reference_points()[system.global_batch_size][1]
        expected = (
            point["opt_base_learning_rate"], point["opt_lamb_beta_1"], point["opt_lamb_beta_2"],
            point["opt_learning_rate_training_steps"], point["num_warmup_steps"], point["start_warmup_step"],
        )  # fmt: skip
        assert system.optimizer.weight_decay == point["opt_lamb_weight_decay_rate"]
        assert f"batch {system.global_batch_size:,}" in source
    else:
        found = re.search(r"([\w.]+), MLPerf Training v([\d.]+); ([\d,]+) samples", source)
        assert found is not None, source
        row = _published(found[1], found[2])
        expected = tuple(
            float(row[key])
            for key in ("learning_rate", "beta1", "beta2", "training_steps", "warmup_steps", "start_warmup_step")
        )
        assert int(row["global_batch_size"]) == system.global_batch_size
        assert int(row["samples_to_converge"]) == int(found[3].replace(",", ""))
    schedule = system.schedule
    assert expected == (
        system.optimizer.learning_rate, system.optimizer.beta1, system.optimizer.beta2,
        schedule.max_steps, schedule.warmup_steps, schedule.start_warmup_step,
    )  # fmt: skip


def _published(system: str, ruleset: str) -> dict[str, str]:
    with TABLE.open(newline="") as file:
        (row,) = [r for r in csv.DictReader(file) if r["system"] == system and ruleset in r["rounds"].split(";")]
    return row


@pytest.mark.parametrize(
    ("nodes", "batch", "samples", "quotas"), [(128, 16384, 16, (6, 3, 2, 5)), (171, 16416, 12, (4, 2, 2, 4))]
)
def test_the_papers_runs_are_the_published_ones(nodes: int, batch: int, samples: int, quotas: tuple[int, ...]) -> None:
    name = f"dgxa100_n{nodes}_open"
    system = load_system(name)
    row = _published(f"samsung_supercomputer21_dgxa100_n{nodes}_pytorch", "2.0")
    assert (system.global_batch_size, system.local_batch) == (batch, samples)
    assert int(row["global_batch_size"]) == batch
    assert system.optimizer.learning_rate == pytest.approx(float(row["learning_rate"]), rel=1e-12)
    assert (system.schedule.max_steps, system.schedule.decay_steps) == (299, 179)
    # the published decay is counted from step 82, and evaluated at s + 1: (67 - 82) / (179 - 82) at step 66
    assert system.learning_rate.rate(66) == pytest.approx(4.461e-4, rel=1e-3)
    assert load_system(name, ["schedule.first_step=0"]).learning_rate.rate(66) == pytest.approx(4.497e-4, rel=1e-3)
    assert (system.balance.method, system.balance.row_order) == ("stratified_presort", "snake")
    assert system.data.strata_quotas == quotas
    assert (system.clip.mode, system.clip.parts, system.communication.buckets) == ("bucket", "each", 22)
    assert system.clip.limit(22) == pytest.approx(0.2132, abs=1e-4)  # 1 / sqrt(22)
    assert load_system(name, ["clip.divisor=25"]).clip.limit(22) == 0.2
    assert load_system(name, ["data.gradient_accumulation_steps=2"]).clipped_parts == 2


@pytest.mark.parametrize(("name", "batch"), [("dgxa100_n1_open", 448), ("dgxa100_n8_open", 3072)])
def test_scaled_files_follow_the_square_root_rule(name: str, batch: int) -> None:
    system, paper = load_system(name), load_system("dgxa100_n128_open")
    ratio = batch / 16384
    assert system.global_batch_size == batch
    assert system.optimizer.learning_rate == pytest.approx(paper.optimizer.learning_rate * ratio**0.5)
    assert 1 - system.optimizer.beta1 == pytest.approx((1 - 0.8003575444254268) * ratio)
    assert 1 - system.optimizer.beta2 == pytest.approx((1 - 0.8174653681457493) * ratio)
    assert system.optimizer.epsilon == pytest.approx(1e-9 / ratio**0.5)
    assert system.schedule.end_learning_rate == pytest.approx(4.94549100544884e-5 * ratio**0.5)
    assert (system.schedule.decay_from, system.schedule.first_step) == ("warmup_steps", 1)
    quotas = [quota * system.local_batch / 16 for quota in (6, 3, 2, 5)]
    assert system.data.strata_quotas == pytest.approx(quotas, abs=0.5)
    for scaled_steps, steps in ((system.schedule.decay_steps, 179), (system.schedule.warmup_steps, 82)):
        assert scaled_steps is not None
        assert scaled_steps * batch == pytest.approx(steps * 16384, rel=0.01)
    assert scaled_to_its_batch(system) is system  # a configuration that a run wrote down isn't scaled again


def test_the_linear_rule_scales_the_rate_by_the_batch_and_leaves_betas_epsilon_and_decay() -> None:
    root = load_system("dgxa100_n8_open")
    linear = load_system("dgxa100_n8_open", ["scale_rule=linear"])
    paper = load_system("dgxa100_n128_open")
    ratio = 3072 / 16384
    assert linear.optimizer.learning_rate == pytest.approx(paper.optimizer.learning_rate * ratio)
    assert linear.schedule.end_learning_rate == pytest.approx(paper.schedule.end_learning_rate * ratio)
    rate = {"learning_rate": None, "sharded": None}  # the second depends on the number of GPUs
    assert linear.optimizer.model_copy(update=rate) == paper.optimizer.model_copy(update=rate)
    assert linear.schedule.model_copy(update={"end_learning_rate": root.schedule.end_learning_rate}) == root.schedule
    assert scaled_to_its_batch(linear) is linear
    assert load_system("dgxa100_n8_open", ["scale_rule=root"]).optimizer == root.optimizer
    beyond_what_the_root_rules_betas_allow = ["data.local_batch=16384", "data.strata_quotas=null"]
    far = load_system("dgxa100_n1_open", ["scale_rule=linear", *beyond_what_the_root_rules_betas_allow])
    assert far.optimizer.beta1 == paper.optimizer.beta1
    with pytest.raises(ConfigError, match="scale_from_batch"):
        load_system("dgxa100_n128_open", ["scale_rule=linear"])


def test_scaling_lamb_or_beyond_what_betas_allow_is_refused() -> None:
    with pytest.raises(ConfigError, match="adam"):
        load_system("dgxa100_n8", ["scale_from_batch=448"])
    with pytest.raises(ConfigError, match="82066"):
        load_system("dgxa100_n1_open", ["data.local_batch=16384"])
    linear = ["optimizer.name=adam", "optimizer.ema_decay=0", "scale_from_batch=64", "scale_rule=linear"]
    with pytest.raises(ConfigError, match="would become 0"):
        load_system("cpu_demo", [*linear, "data.global_batch_size=65536", "schedule.max_steps=400"])  # 400 / 1,024


@pytest.mark.parametrize("name", system_names())
def test_the_exported_description_passes_the_official_checker(name: str, tmp_path: Path) -> None:
    path = write_json(tmp_path / f"{name}.json", load_system(name).hardware.description())
    valid, system_name, *_ = check_system_desc(path, "training", "5.0.0")
    assert (valid, system_name) == (True, name)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of runs with all values of their files."""
    folder = tmp_path_factory.mktemp("logs")
    run_ranks(1, _log_all, folder)
    return folder


def test_a_log_with_a_files_values_passes_the_official_checker(logs: Path) -> None:
    verdicts = {path.stem: judge_log(path, "5.0.0") for path in logs.glob("*.txt")}
    assert set(verdicts) == set(GPU_SYSTEMS)
    assert {name: v.breaches for name, v in verdicts.items() if v.verdict != "pass"} == {}


@pytest.mark.parametrize(
    "ruleset", ["1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0", "4.1.0", "5.0.0"]
)  # every one that accepts BERT's keys as they are now
def test_a_closed_log_passes_the_official_checker_of_every_round(ruleset: str, logs: Path) -> None:
    found = judge_log(logs / "dgxa100_n8.txt", ruleset)
    assert (found.official.verdict, found.breaches) == ("pass", ())


def test_a_log_says_everything_that_decides_its_legality(logs: Path) -> None:
    logged = [(line["key"], line["value"]) for line in _records(logs / "dgxa100_n8.txt")]
    for expected in {
        "submission_status": "onprem",
        "opt_epsilon": 1e-6,
        "opt_lamb_epsilon": 1e-6,
        "opt_gradient_clip_norm": 1.0,
        "opt_lamb_learning_rate_decay_poly_power": 1,
        "opt_learning_rate_decay_steps": 1059,
        "opt_learning_rate_training_steps": 1059,
        "opt_end_learning_rate": 0.0,
        "d_batch_size": 48,  # 3,072 samples over 64 ranks
        "max_sequence_length": 512,
        "bertbench_clip_mode": load_system("dgxa100_n8").clip.mode,
        "bertbench_compression": "bf16",
        "bertbench_sync_method": "every_step",
        "bertbench_loss_normalize": "rank",
        "bertbench_ema_decay": 0.0,
        "bertbench_hidden_dropout": 0.1,
        "bertbench_attention_dropout": 0.1,
        "bertbench_checkpoint": True,
        "bertbench_balance": "planned",
        "bertbench_precision": "bf16",
        "bertbench_target": 0.72,
        "bertbench_evaluation_interval": 175_000,
        "bertbench_max_steps": 1059,
        "bertbench_model": {
            "vocab_size": 30528, "hidden_size": 1024, "layers": 24, "attention_heads": 16, "feed_forward_size": 4096,
            "max_positions": 512,
        },
    }.items():  # fmt: skip
        assert logged.count(expected) == 1, expected


def test_the_horizon_of_the_decay_is_logged_and_not_the_limit_of_the_run(logs: Path) -> None:
    logged = {line["key"]: line["value"] for line in _records(logs / "dgxa100_n128_open.txt")}
    assert logged["opt_learning_rate_training_steps"] == logged["opt_learning_rate_decay_steps"] == 179
    assert (logged["bertbench_max_steps"], logged["bertbench_clip_mode"]) == (299, "bucket")
    schedule = logged["bertbench_schedule"]
    assert (schedule["first_step"], schedule["decay_from_step"]) == (1, 82)
    assert schedule["rates_by_step"]["66"] == pytest.approx(4.461e-4, rel=1e-3)
    assert logged["bertbench_strata"] == {"edges": [128, 256, 384, 512], "quotas": [6, 3, 2, 5]}


def _records(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text().splitlines()]


def test_an_initialisation_longer_than_the_rules_allow_is_refused(tmp_path: Path) -> None:
    (refused,) = run_ranks(1, _initialise_too_long, tmp_path / "log.txt")
    assert "files" in refused


def _initialise_too_long(world: World, path: Path) -> str:
    began_before = Startup(time.time() - 100)
    with MlperfLog(path) as log:
        clock = Clock(log, world, 0, began_before)
        with pytest.raises(RunError) as caught, clock.init():
            pass
    return str(caught.value)


def _log_all(world: World, folder: Path) -> None:
    for name in GPU_SYSTEMS:
        system, path = load_system(name), folder / f"{name}.txt"
        with MlperfLog(path) as log:
            clock = Clock(log, world, system.init_limit_minutes, Startup(0.0))
            with clock.init():
                log.point(constants.CACHE_CLEAR, True)
                log_submission(log, system, seed=1)
                log_weights(log, (piece.tensorflow for piece in pieces(system.model.shape())))
            with clock.run(evaluation_samples=10_000) as run:
                _log_run(system, run)
        _at_a_rate(path, samples_per_s=150 * system.world_size)


def _log_run(system: System, run: Run) -> None:
    """A curve like those of published runs: it approaches the target, and reaches it after some 2.5 million samples."""
    batch, noise = system.global_batch_size, Random(7)
    blocks = list(system.blocks())
    blocks = blocks[: next((n for n, (_, stop) in enumerate(blocks, 1) if stop * batch >= 2_500_000), len(blocks))]
    for left, (first, stop) in reversed(list(enumerate(reversed(blocks)))):
        with run.training(first * batch, (stop - first) * batch):
            pass
        with run.evaluation():
            run.measured(0.7201 - 0.01 * left - (noise.uniform(0, 0.004) if left else 0))
    run.success()


def _at_a_rate(path: Path, samples_per_s: float) -> None:
    """Give a log that was written at once the times of a run: by samples, with some noise per evaluation."""
    lines = _records(path)
    start = next(number for number, line in enumerate(lines) if line["key"] == constants.RUN_START)
    trained, late_ms, noise = 0.0, 0, Random(11)
    for number, line in enumerate(lines[start:]):
        late_ms += noise.randrange(120) if line["key"] == constants.EVAL_ACCURACY else 0
        if line["key"] in (constants.EVAL_START, constants.EVAL_ACCURACY):
            trained = line["metadata"][constants.EPOCH_NUM]
        elif line["key"] == constants.BLOCK_STOP:  # its metadata says where it began; the evaluation, where it ended
            trained = lines[start + number + 1]["metadata"][constants.EPOCH_NUM]
        line["time_ms"] = lines[start]["time_ms"] + int(1e3 * trained / samples_per_s) + number + late_ms
    path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
