"""Write a small submission package, change it, and judge it by our judge and by the official package checker."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from compliance import judge_package
from compliance.package.package import PackageJudgement
from tests.compliance.logs import RESULTS
from tests.compliance.mutations import Mutation, change_file

START = 1_700_000_000_000  # ms since 1970
BATCH = 448
RUNS = 10
INIT_MS = 1_000  # from START to run_start

LOGS = "results/toy/bert"
LOG = f"{LOGS}/result_3.txt"
SCALING = f"{LOGS}/scaling.json"
SOURCES = "benchmarks/bert/implementations/toy"
SYSTEM = "systems/toy.json"

SETTINGS: dict[str, Any] = {
    "opt_base_learning_rate": 4.25e-4, "opt_lamb_epsilon": 1e-6, "opt_learning_rate_training_steps": 6700,
    "opt_learning_rate_warmup_steps": 0, "num_warmup_steps": 0, "start_warmup_step": 0, "opt_lamb_beta_1": 0.9,
    "opt_lamb_beta_2": 0.999, "opt_lamb_weight_decay_rate": 0.01, "gradient_accumulation_steps": 1,
    "global_batch_size": BATCH, "d_batch_size": 56,
}  # fmt: skip


def line(key: str, value: Any = None, time_ms: int = 0, **metadata: Any) -> str:
    """Return the line of a log for a record, so many milliseconds after START."""
    record = {"namespace": "", "time_ms": START + time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**record, "metadata": {"file": "x.py", "lineno": 1, **metadata}})


def evaluated_after(evaluations: int) -> int:
    """Samples at an evaluation: every 150,000 at this batch size, rounded up to the next batch (MLPerf's rule)."""
    return -(-evaluations * 150_000 // BATCH) * BATCH


def run_log(
    division: str = "closed", evaluations: int = 17, seconds: int = 100, seed: int = 1, status: str = "success"
) -> str:
    """Return the log of a run by ruleset 5.0.0; its last evaluation reaches the target unless the run is aborted."""
    chance = random.Random(seed)  # no two runs measure the same, nor do two intervals of one
    stop = INIT_MS + seconds * 1_000
    evenly = [INIT_MS + seconds * 1_000 * done // evaluations for done in range(evaluations)]
    starts = [time + chance.randrange(200) for time in evenly]
    starts[0] = INIT_MS
    ends = [*starts[1:], stop]
    lines = _lines_before(division, seed)
    for number in range(evaluations):
        is_last = number == evaluations - 1
        accuracy = 0.42 + min(number / 40, 0.2992)
        if is_last and status == "success":
            accuracy = 0.7203
        accuracy += chance.random() * 1e-3
        lines += _interval_lines(number, starts[number], ends[number], accuracy)
    lines += [
        line("train_samples", evaluated_after(evaluations), stop),
        line("eval_samples", 10_000, stop),
        line("run_stop", time_ms=stop, status=status),
    ]
    return "\n".join(lines) + "\n"


def _lines_before(division: str, seed: int) -> list[str]:
    return [
        line("init_start"), line("cache_clear", True), line("submission_benchmark", "bert"),
        line("submission_division", division), line("submission_org", "org"), line("submission_platform", "toy"),
        line("submission_status", "onprem"), line("seed", seed),
        *(line(key, value) for key, value in SETTINGS.items()),
        line("init_stop", time_ms=INIT_MS), line("run_start", time_ms=INIT_MS),
    ]  # fmt: skip


def _interval_lines(number: int, start_ms: int, end_ms: int, accuracy: float) -> list[str]:
    """Return the lines from one evaluation, or the start, to the next; `number` counts from 0."""
    samples = evaluated_after(number)
    samples_at_end = evaluated_after(number + 1)
    return [
        line("block_start", time_ms=start_ms, first_epoch_num=samples, epoch_count=samples_at_end - samples),
        line("block_stop", time_ms=end_ms, first_epoch_num=samples),
        line("eval_start", time_ms=end_ms - 99, epoch_num=samples_at_end),
        line("eval_accuracy", accuracy, end_ms, epoch_num=samples_at_end),
        line("eval_stop", time_ms=end_ms, epoch_num=samples_at_end),
    ]


def write_package(root: Path, division: str = "closed", **run: Any) -> Path:
    """Write a package that passes, of ten runs with their own seeds and seconds; returns the folder of its logs.

    `run` changes all runs, as `run_log` has it.
    """
    logs = root / LOGS
    logs.mkdir(parents=True)
    for number in range(RUNS):
        log = run_log(division, seconds=100 + number, seed=number + 1, **run)
        (logs / f"result_{number}.txt").write_text(log)
    description = json.loads((RESULTS / "result_0" / "system.json").read_text())
    description |= {
        "submitter": "org", "division": division, "status": "Available on-premise", "system_name": "toy",
        "number_of_nodes": "1", "accelerators_per_node": "8", "accelerator_model_name": "toy accelerator",
    }  # fmt: skip
    (root / "systems").mkdir()
    (root / SYSTEM).write_text(json.dumps(description))
    sources = root / SOURCES
    sources.mkdir(parents=True)
    (sources / "main.py").write_text("print('train')\n")
    for name in ("toy_main.json", "README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh"):
        (sources / name).write_text("{}\n")
    return logs


def rewrite(description: Path, old: str, new: str) -> None:
    """Replace a text in a system's description, in all places; fails if it isn't there."""
    content = description.read_text()
    assert old in content, (description, old)
    description.write_text(content.replace(old, new))


def edited(old: str, new: str) -> Callable[[Path], None]:
    """Return a change of a description, for a parameter of a test."""
    return lambda description: rewrite(description, old, new)


def mutated(*changes: Mutation) -> Callable[[Path], None]:
    """Return a change of a log, for a parameter of a test."""
    return lambda log: change_file(log, *changes)


def judged(root: Path) -> PackageJudgement:
    return judge_package(root, "5.0.0")


def breached_rules(root: Path, ruleset: str = "5.0.0") -> set[str]:
    return {breach.rule.id for breach in judge_package(root, ruleset).all_breaches()}


def lacking_evidence(root: Path) -> set[str]:
    """Return the rules that ask for what the package doesn't give; with --strict they fail it."""
    judgement = judged(root)
    of_results = [unchecked for result in judgement.results for unchecked in result.not_applied]
    return {unchecked.rule for unchecked in [*judgement.not_applied, *of_results] if unchecked.asked}


class OfficialVerdict(NamedTuple):
    """What the official package checker says; a crash isn't a pass. `scaling` is the factor that it wrote, if any."""

    passed: bool
    scaling: float | None


def official_package_checker(root: Path, scratch: Path, *options: str) -> OfficialVerdict:
    """Run the official package checker on a copy: it writes into the package that it judges."""
    copy = scratch / "copy"
    shutil.copytree(root, copy)
    command = [sys.executable, "-m", "mlperf_logging.package_checker", str(copy), "training", "5.0.0", *options]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    scaling = None
    for file in copy.rglob("scaling.json"):
        scaling = json.loads(file.read_text())["scaling_factor"]
    shutil.rmtree(copy)
    return OfficialVerdict("FOUND NO ERRORS, SUCCESS" in done.stderr, scaling)
