"""Search for the best values of a configuration by Optuna: half of the trials are random, half are proposed by TPE.

Optuna's median pruner ends a run that reports its evaluations: after the random half, once its best accuracy is below
the median of the earlier trials after as many samples. It waits for a quarter of the best trial's samples: before,
accuracies say little. Without the wait, nine of ten proposals were pruned after 3 to 6 of some 250 steps.
"""

from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

from lab.study.definition import Prune, Range, Values

_BLIND_SHARE = 0.25
"""Share of the best trial's samples in which no run is pruned."""
Score = Callable[[Values, Prune], float | None]
"""Returns the samples that values take, the fewer the better; None if they were pruned."""


class Search:
    """One configuration's search. Searches with the same seed try the same random values."""

    def __init__(self, ranges: Mapping[str, Range], trials: int, sampler_seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._ranges = ranges
        self._trials = trials
        self._random = trials // 2
        self._sampler_seed = sampler_seed
        self._study = optuna.create_study()

    def best(self, score: Score) -> Values:
        """Return the values with the lowest score.

        If scores come from a journal, a resumed search continues exactly like an uninterrupted one.
        """
        distributions: dict[str, BaseDistribution] = {
            name: FloatDistribution(bounds.low, bounds.high, log=True) for name, bounds in self._ranges.items()
        }
        for number in range(self._trials):
            # a new sampler for every trial, so that its values depend only on the trial's number
            self._study.sampler = optuna.samplers.TPESampler(
                n_startup_trials=self._random, seed=self._sampler_seed + number
            )
            self._study.pruner = self._pruner_now()
            trial = self._study.ask(distributions)
            samples = score(self._values(trial.params), _pruner(trial))
            state = TrialState.PRUNED if samples is None else TrialState.COMPLETE
            self._study.tell(trial, samples, state)
        return self._values(self._study.best_params)

    def narrowed(self) -> dict[str, Any]:
        """Return which trials were pruned and after how many samples, and the values that TPE went on to propose."""
        of_tpe = [self._values(trial.params) for trial in self._study.trials[self._random :]]
        proposed = {}
        for name in self._ranges:
            tried = [values[name] for values in of_tpe]
            proposed[name] = [min(tried), max(tried)]
        return {
            "random_trials": self._random,
            "proposed": proposed,
            "pruned": [
                {"trial": trial.number + 1, "samples": trial.last_step}
                for trial in self._study.trials
                if trial.state == TrialState.PRUNED
            ],
        }

    def _pruner_now(self) -> optuna.pruners.MedianPruner:
        """Return the pruner of the next trial, which knows the best one so far."""
        scores = [trial.value for trial in self._study.trials if trial.state == TrialState.COMPLETE]
        least = min((score for score in scores if score is not None), default=0.0)
        blind_samples = int(_BLIND_SHARE * least)
        return optuna.pruners.MedianPruner(n_startup_trials=max(1, self._random), n_warmup_steps=blind_samples)

    def _values(self, drawn: Mapping[str, float]) -> Values:
        return {name: self._ranges[name].value(number) for name, number in drawn.items()}


def _pruner(trial: optuna.Trial) -> Prune:
    """Return the function that reports a trial's evaluations, each once, although the journal repeats them."""
    answers: dict[float, bool] = {}

    def prune(samples: float, accuracy: float) -> bool:
        if samples not in answers:
            trial.report(1 - accuracy, int(samples))  # the study looks for the lowest
            answers[samples] = trial.should_prune()
        return answers[samples]

    return prune
