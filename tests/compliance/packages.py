"""Packages for tests, of runs that take as many evaluations and seconds as they are told, closed or open."""

import json
import random
from pathlib import Path
from typing import Any

from tests.compliance.logs import RESULTS

START = 1_700_000_000_000  # ms since 1970


def line(key: str, value: Any = None, time_ms: int = 0, **metadata: Any) -> str:
    record = {"namespace": "", "time_ms": START + time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**record, "metadata": {"file": "x.py", "lineno": 1, **metadata}})


BATCH = 448


def evaluated_after(evaluations: int) -> int:
    """Samples at an evaluation: every 150,000 at this batch size, rounded up to the next batch (MLPerf's rule)."""
    return -(-evaluations * 150_000 // BATCH) * BATCH


def run_log(
    division: str = "closed", evaluations: int = 17, seconds: int = 100, seed: int = 1, status: str = "success"
) -> str:
    """A run by ruleset 5.0.0 whose last evaluation reaches the target, or doesn't if it is aborted."""
    settings: dict[str, Any] = {
        "opt_base_learning_rate": 4.25e-4, "opt_lamb_epsilon": 1e-6, "opt_learning_rate_training_steps": 6700,
        "opt_learning_rate_warmup_steps": 0, "num_warmup_steps": 0, "start_warmup_step": 0, "opt_lamb_beta_1": 0.9,
        "opt_lamb_beta_2": 0.999, "opt_lamb_weight_decay_rate": 0.01, "gradient_accumulation_steps": 1,
        "global_batch_size": BATCH, "d_batch_size": 56,
    }  # fmt: skip
    lines = [
        line("init_start"), line("cache_clear", True), line("submission_benchmark", "bert"),
        line("submission_division", division), line("submission_org", "org"), line("submission_platform", "toy"),
        line("submission_status", "onprem"), line("seed", seed), *(line(*setting) for setting in settings.items()),
        line("init_stop", time_ms=1_000), line("run_start", time_ms=1_000),
    ]  # fmt: skip
    chance = random.Random(seed)  # no two runs measure the same, nor do two intervals of one
    times = [1_000 + seconds * 1_000 * done // evaluations + chance.randrange(200) for done in range(evaluations)]
    stop = 1_000 + seconds * 1_000
    times = [1_000, *times[1:], stop]
    for number in range(evaluations):
        start, end = evaluated_after(number), evaluated_after(number + 1)
        began, ended = times[number : number + 2]
        reached = number == evaluations - 1 and status == "success"
        accuracy = (0.7203 if reached else 0.42 + min(number / 40, 0.2992)) + chance.random() * 1e-3
        lines += [
            line("block_start", time_ms=began, first_epoch_num=start, epoch_count=end - start),
            line("block_stop", time_ms=ended, first_epoch_num=start),
            line("eval_start", time_ms=ended - 99, epoch_num=end),
            line("eval_accuracy", accuracy, ended, epoch_num=end), line("eval_stop", time_ms=ended, epoch_num=end),
        ]  # fmt: skip
    lines += [
        line("train_samples", evaluated_after(evaluations), stop), line("eval_samples", 10_000, stop),
        line("run_stop", time_ms=stop, status=status),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def write_package(root: Path, division: str = "closed", **changes: Any) -> Path:
    """A package that passes: ten runs with their own seeds; returns the folder of its logs."""
    logs = root / "results" / "toy" / "bert"
    logs.mkdir(parents=True)
    for run in range(10):
        (logs / f"result_{run}.txt").write_text(run_log(division, seconds=100 + run, seed=run + 1, **changes))
    described = {
        "submitter": "org", "division": division, "status": "Available on-premise", "system_name": "toy",
        "number_of_nodes": "1", "accelerators_per_node": "8", "accelerator_model_name": "toy accelerator",
    }  # fmt: skip
    (root / "systems").mkdir()
    fields = json.loads((RESULTS / "result_0" / "system.json").read_text()) | described
    (root / "systems" / "toy.json").write_text(json.dumps(fields))
    sources = root / "benchmarks" / "bert" / "implementations" / "toy"
    sources.mkdir(parents=True)
    (sources / "main.py").write_text("print('train')\n")
    for name in ("toy_main.json", "README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh"):
        (sources / name).write_text("{}\n")
    return logs
