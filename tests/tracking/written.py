"""A run's files with numbers that a test can add up: 100 samples a step, evaluations after 300 and 600."""

import json
from pathlib import Path
from typing import Any

from tests.compliance.packages import START, line

CONFIG = {
    "name": "toy",
    "evaluation": {"target": 0.5},
    "schedule": {"max_steps": 40},
    "launch": {"device": "cpu"},
    "optimizer": {"learning_rate": 0.1, "note": None},
}
ORIGIN = {"seed": 7, "world_size": 2, "commit": "abcdef0123456789"}


def row(step: int, **more: Any) -> str:
    """A step of 1 s, a tenth of which it waited for data."""
    known = {"step": step, "samples": 100 * step, "loss": 10 - step, "lr": 0.1 * step, "grad_norm": 2.0, "clipped": 0.5}
    return json.dumps({**known, "step_ms": 1000.0, "load_wait_ms": 100.0, "load_efficiency": 0.9, **more}) + "\n"


def log_lines(until_ms: int = 10_000, status: str | None = None) -> str:
    """The lines until that time; where a status is given the run ends with it then."""
    lines = [
        (0, line("seed", 7)),
        (0, line("global_batch_size", 100)),
        (0, line("submission_benchmark", "bert")),
        (0, line("submission_platform", "toy")),
        (0, line("run_start", time_ms=0)),
        (500, line("block_start", time_ms=500, first_epoch_num=0, epoch_count=300)),
        (3500, line("block_stop", time_ms=3500, first_epoch_num=0)),
        (3500, line("eval_start", time_ms=3500, epoch_num=300)),
        (4000, line("eval_accuracy", 0.25, time_ms=4000, epoch_num=300)),
        (4000, line("eval_stop", time_ms=4000, epoch_num=300)),
        (4000, line("block_start", time_ms=4000, first_epoch_num=300, epoch_count=300)),
        (7000, line("block_stop", time_ms=7000, first_epoch_num=300)),
        (7000, line("eval_start", time_ms=7000, epoch_num=600)),
        (7500, line("eval_accuracy", 0.5, time_ms=7500, epoch_num=600)),
        (7500, line("eval_stop", time_ms=7500, epoch_num=600)),
    ]
    ending = [line("run_stop", time_ms=until_ms, status=status)] if status else []
    return "".join(f"{text}\n" for text in [*(text for time_ms, text in lines if time_ms <= until_ms), *ending])


def write_run(
    folder: Path, steps: int = 6, until_ms: int = 8000, status: str | None = "success", number: int = 0
) -> Path:
    """Write a run as bertbench leaves it; return its log."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"result_{number}.txt"
    log.write_text(log_lines(until_ms, status))
    beside = log.with_suffix("")
    beside.mkdir(exist_ok=True)
    (beside / "config.json").write_text(json.dumps(CONFIG))
    (beside / "run.json").write_text(json.dumps(ORIGIN))
    (beside / "metrics.jsonl").write_text("".join(row(step + 1) for step in range(steps)))
    return log


START_S = START / 1e3
