"""Search the values of a configuration: a budget of trials, half of them random, half where Optuna's TPE proposes."""

from collections.abc import Callable, Mapping

from lab.study.definition import Range, Values


def search(ranges: Mapping[str, Range], trials: int, sampler_seed: int, score: Callable[[Values], float]) -> Values:
    """Return the values with the lowest score. Searches with one seed try the same random values.

    A search whose scores come from a journal resumes exactly as an uninterrupted one.
    """
    import optuna  # noqa: PLC0415 - an optional extra

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(bounds.low, bounds.high, log=True)
        for name, bounds in ranges.items()
    }

    def values_of(drawn: Mapping[str, float]) -> Values:
        return {name: ranges[name].value(number) for name, number in drawn.items()}

    for number in range(trials):
        # a new sampler for every trial: what it draws depends on its number alone
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=trials // 2, seed=sampler_seed + number)
        trial = study.ask(distributions)
        study.tell(trial, score(values_of(trial.params)))
    return values_of(study.best_params)
