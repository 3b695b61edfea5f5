"""Run one trial with a system on this machine: `bertbench train`, from its start to the target."""

import json
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertbench.common.children import dying_with_us
from bertbench.common.errors import RunError
from bertbench.config.given import override_texts
from bertbench.runs.files import ResultFiles
from bertbench.runs.log_spans import evaluation_s
from bertbench.runs.run_summary import is_empty
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from lab.bench.whole_run import check_ended, train_command, train_here
from lab.study.definition import Prune
from lab.study.engine import TrialOutcome

_LOOK_S = 0.2  # an evaluation of the demo takes about as long
_FORMATS = {"precision.compute": "precision", "precision.residual": "residual"}
"""The settings of number formats, and their names in a run's arithmetic file."""


def run_on_system(
    system: str, settings: Mapping[str, Any], seed: int, most_samples: float = math.inf, prune: Prune | None = None
) -> TrialOutcome:
    """Train until the target, the end of the schedule, `most_samples`, or the evaluation after which `prune` ends it.

    Raises RunError if the run fails, or computes in another number format than it was given.
    """
    if math.isfinite(most_samples):
        settings = {**settings, "evaluation.max_samples": math.ceil(most_samples)}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run_0.txt"
        if prune is None:
            train_here(system, override_texts(settings), seed, log)
        else:
            _train_watched(system, override_texts(settings), seed, log, prune)
        files = ResultFiles(log)
        arithmetic = json.loads(files.arithmetic.read_text(encoding="utf-8"))
        steps = [json.loads(line) for line in files.metrics.read_text(encoding="utf-8").splitlines()]
        facts = RunFacts(read_events(log))
    check_formats(settings, arithmetic, seed)
    assert facts.time_to_train_s is not None, "a run that ends has a start and a stop"
    clipped = [step["clipped"] for step in steps]
    return TrialOutcome(
        samples=facts.samples if facts.status == "success" else None,
        accuracy=facts.evaluations[-1].accuracy if facts.evaluations else 0.0,
        clipped=round(statistics.mean(clipped), 4),
        clipped_steps=round(statistics.mean(share > 0 for share in clipped), 4),
        seconds=facts.time_to_train_s - evaluation_s(facts),
        course=_course(facts),
    )


def _train_watched(system: str, words: list[str], seed: int, log: Path, prune: Prune) -> None:
    """Run until it ends, or until `prune` says so of an evaluation. Raises RunError if it fails."""
    command = train_command(system, words, seed, log)
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=dying_with_us()) as process,
    ):
        try:
            pruned = _watched(process, log, prune)
        finally:
            process.terminate()
        code = process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    if not pruned:
        check_ended(log, seed, code, said)


def _watched(process: "subprocess.Popen[bytes]", log: Path, prune: Prune) -> bool:
    """Return at the evaluation after which `prune` ends the run, or when the run has ended; say whether it's pruned."""
    seen = 0
    while process.poll() is None:
        time.sleep(_LOOK_S)
        if not log.exists() or is_empty(log):
            continue
        course = _course(RunFacts(read_events(log)))
        if any(prune(*evaluation) for evaluation in course[seen:]):
            return process.poll() is None
        seen = len(course)
    return False


def _course(facts: RunFacts) -> list[tuple[float, float]]:
    return [(evaluation.samples, evaluation.accuracy) for evaluation in facts.evaluations if evaluation.samples]


def check_formats(settings: Mapping[str, Any], arithmetic: Mapping[str, Any], seed: int) -> None:
    """Raise RunError if a run's arithmetic file names another number format than the run's settings."""
    for setting, recorded_as in _FORMATS.items():
        asked = settings.get(setting, "auto")
        taken = arithmetic[recorded_as]
        if asked not in ("auto", taken):
            reasons = "; ".join(arithmetic["refused"]) or "no reason recorded"
            raise RunError(
                f"seed {seed}: expected {setting} {asked}, but the run took {taken} ({reasons}); "
                "compare the formats on a machine that computes in both"
            )
