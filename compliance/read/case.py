"""One log as the rules and questions see it: its facts, its faulty lines, its ruleset and its system's description."""

import math
from itertools import pairwise
from statistics import median

from compliance.read.log import Log
from compliance.read.run import LoggedEvaluation, RunFacts, alone, number, numeric

TRAINING_STEPS = "opt_learning_rate_training_steps"
_LEAST_INTERVAL = 150_000 / 4
"""Samples between evaluations: the shortest interval in the rules is 150,000. Closer counts must count something else.
"""

_COUNTS_TRAINING_SAMPLES = "1.1.0"
"""In round 1.0, BERT reported evaluation samples, and in later rounds training samples (RCP Rules and Guidelines)."""


class Case(RunFacts):
    """The facts of a log under one ruleset, read once.

    `system` has the fields of the system description, and is empty if there is none. `batch` is the global batch size,
    or None if the log has none above 0. `required_division` is the value of --division.
    """

    def __init__(self, log: Log, ruleset: str, required_division: str | None, system: dict[str, str]) -> None:
        super().__init__(log.events)
        self.log = log
        self.ruleset = ruleset
        self.required_division = required_division
        self.system = system
        self.closed = self.division == "closed"
        batch = numeric(alone(self.value("global_batch_size")))
        self.batch = batch if batch and batch > 0 else None

    def number(self, key: str) -> float | None:
        """Return the number in the first event of a key, or None."""
        return number(self.value(key))

    def in_samples(self) -> list[tuple[LoggedEvaluation, float]]:
        """Return evaluations with their training samples, from epoch_num; none if epoch_num counts something else.

        320 of 2,480 published logs count epochs or steps. Those counts are closer together than counts of samples.
        """
        counted: dict[float, LoggedEvaluation] = {}
        for evaluation in self.evaluations:
            if evaluation.samples is not None and evaluation.samples > 0:
                counted[evaluation.samples] = evaluation
        batch = self.batch or math.inf
        if max(counted, default=0) < batch:
            return []
        different_accuracies = len({evaluation.accuracy for evaluation in self.evaluations}) > 1
        if len(counted) == 1 and different_accuracies:
            return []  # all evaluations have the same count
        samples = sorted(counted)
        gap = samples[0]
        if len(samples) > 1:
            gap = median(after - before for before, after in pairwise(samples))
        steps = self.number(TRAINING_STEPS) or (math.inf if self.closed else 0.0)
        are_close = gap < _LEAST_INTERVAL
        if samples[-1] <= steps and (are_close or not self.closed):
            return []  # these are steps
        if self.closed and are_close and self.ruleset < _COUNTS_TRAINING_SAMPLES:
            return []  # these are evaluation samples
        return [(counted[count], count) for count in samples]
