"""Search the values of an arm: a budget of trials, half of them random, half where Optuna's TPE proposes."""

from collections.abc import Callable, Mapping

from lab.study.definition import Range

TUNING_SEED = 1000
"""Seed of tuning runs; finalists take the following ones, comparisons count from 1."""
SPARE = 1.05
"""Finalists may take this multiple of tuning's patience, so that noise drops none of them."""

Tried = tuple[float, dict[str, float]]
"""A trial's score and values."""


def search(
    ranges: Mapping[str, Range], trials: int, sampler_seed: int, score: Callable[[dict[str, float]], float]
) -> list[Tried]:
    """Return all trials, the lowest score first. Searches with one seed try the same random values.

    A search whose scores come from a journal resumes exactly as an uninterrupted one.
    """
    import optuna  # noqa: PLC0415 - an optional extra

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(bounds.low, bounds.high, log=True)
        for name, bounds in ranges.items()
    }
    tried: list[Tried] = []
    for number in range(trials):
        # a new sampler for every trial: what it draws depends on its number alone
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=trials // 2, seed=sampler_seed + number)
        trial = study.ask(distributions)
        found = score(trial.params)
        tried.append((found, trial.params))
        study.tell(trial, found)
    return sorted(tried, key=lambda trial: trial[0])


def score_of(samples: float | None, accuracy: float, limit: float) -> float:
    """Return samples to target; of a run that missed it more than any within `limit`, the less accurate the more."""
    return limit * (2 - accuracy) if samples is None else samples
