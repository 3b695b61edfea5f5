"""A run's files with numbers that a test can add up: 100 samples a step, evaluations after 300 and 600."""

import json
from pathlib import Path
from typing import Any

from tests.compliance.packages import START, line, run_log

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
    """Return the lines until that time; with a status, the run ends then."""
    known = (("seed", 7), ("global_batch_size", 100), ("submission_benchmark", "bert"), ("submission_platform", "toy"))
    events: list[tuple[int, str, Any, dict[str, int]]] = [(0, key, value, {}) for key, value in known]
    events.append((0, "run_start", None, {}))
    for first, began in ((0, 500), (300, 4000)):
        trained, measured = began + 3000, began + 3500
        samples = {"epoch_num": first + 300}
        events += [
            (began, "block_start", None, {"first_epoch_num": first, "epoch_count": 300}),
            (trained, "block_stop", None, {"first_epoch_num": first}),
            (trained, "eval_start", None, samples),
            (measured, "eval_accuracy", 0.25 * (first + 300) / 300, samples),
            (measured, "eval_stop", None, samples),
        ]
    written = [line(key, value, time_ms, **more) for time_ms, key, value, more in events if time_ms <= until_ms]
    ending = [line("run_stop", time_ms=until_ms, status=status)] if status else []
    return "".join(f"{text}\n" for text in [*written, *ending])


def leave(
    folder: Path, number: int, seconds: int, config: Any = None, origin: Any = None, log: str = "", metrics: str = ""
) -> Path:
    """Write a run's files as bertbench does, with the given ones next to the log; return the log."""
    beside = folder / f"result_{number}"
    beside.mkdir(exist_ok=True, parents=True)
    beside.with_suffix(".txt").write_text(log or run_log("open", evaluations=2, seconds=seconds, seed=number))
    for name, content in (("config.json", config), ("run.json", origin)):
        if content is not None:
            (beside / name).write_text(json.dumps(content))
    if metrics:
        (beside / "metrics.jsonl").write_text(metrics)
    return beside.with_suffix(".txt")


def write_run(
    folder: Path, steps: int = 6, until_ms: int = 8000, status: str | None = "success", number: int = 0
) -> Path:
    """Write a run with numbers that add up; return its log."""
    measured = "".join(row(step + 1) for step in range(steps))
    return leave(folder, number, 0, CONFIG, ORIGIN, log_lines(until_ms, status), measured)


START_S = START / 1e3
