"""Run one trial of a system: an ordinary run with all its ranks as processes of this machine, with log and metrics."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertbench.common.errors import RunError
from bertbench.results.files import ResultFiles
from lab.bench.whole_run import read_run, train_here
from lab.study.engine import Outcome


def overrides(settings: Mapping[str, Any], most_samples: float = math.inf) -> list[str]:
    """Return a trial's settings in the form of --set; its run gives up at `most_samples`."""
    limit = {} if math.isinf(most_samples) else {"evaluation.max_samples": max(1, round(most_samples))}
    given = {**settings, "checkpoint.final_weights": False, **limit}
    return [f"{name}={json.dumps(value)}" for name, value in given.items()]


def run_system(system: str, settings: Sequence[str], seed: int, log: Path) -> Outcome:
    """Run a system until its target or its end.

    Raises RunError if it fails. A loss that isn't finite doesn't count as a failure: the rate was too high.
    """
    files = ResultFiles(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    files.discard()
    try:
        run = train_here(system, settings, seed, log)
    except RunError:
        if all(math.isfinite(step["loss"]) for step in _steps(files)):
            raise
        run = read_run(log, to_target=True)
    clipped = [step["clipped"] for step in _steps(files)]
    return Outcome(
        run.samples if run.reached else None,
        run.course[-1][1] if run.course else 0.0,
        round(statistics.mean(clipped), 4),
        round(statistics.mean(share > 0 for share in clipped), 4),
        run.seconds,
    )


def _steps(files: ResultFiles) -> list[dict[str, Any]]:
    lines = files.metrics.read_text(encoding="utf-8").splitlines() if files.metrics.exists() else []
    return [json.loads(line) for line in lines]
