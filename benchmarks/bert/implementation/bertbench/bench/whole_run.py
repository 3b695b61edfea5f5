"""A whole run as a bench times it: to the target, or so many steps without an evaluation on the way."""

from pathlib import Path
from typing import NamedTuple

from compliance.log import read_events
from compliance.run import RunFacts

Course = list[tuple[float, float]]
"""Seconds since training began, and the accuracy then, at each evaluation."""


class Trained(NamedTuple):
    """One run of one program."""

    seconds: float
    """From run_start to run_stop; of a run of given steps, less the evaluation at its end."""
    samples: int
    reached: bool
    course: Course


def steps_only(steps: int, global_batch_size: int) -> tuple[str, ...]:
    """Return the settings of a run that ends after so many steps, with one evaluation, which can't end it before."""
    limit = steps * global_batch_size
    return (
        "evaluation.target=0.999999", f"evaluation.max_samples={limit}", f"evaluation.interval_samples={limit}",
    )  # fmt: skip


def read_run(log: Path, to_target: bool) -> Trained:
    """Read what a run that ended in order logged."""
    facts = RunFacts(read_events(log))
    assert facts.time_to_train_s is not None, "a run that ends in order has a start and a stop"
    seconds = facts.time_to_train_s - (0.0 if to_target else facts.evaluation_s)
    return Trained(seconds, int(facts.samples or 0), facts.status == "success", facts.course)
