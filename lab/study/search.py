"""Search for the best values of a configuration: half of the trials are random, half are proposed by Optuna's TPE."""

from collections.abc import Callable, Mapping

from lab.study.definition import Range, Values


def search(ranges: Mapping[str, Range], trials: int, sampler_seed: int, score: Callable[[Values], float]) -> Values:
    """Return the values with the lowest score. Searches with the same seed try the same random values.

    If scores come from a journal, a resumed search continues exactly like an uninterrupted one.
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
        # a new sampler for every trial, so that its values depend only on the trial's number
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=trials // 2, seed=sampler_seed + number)
        trial = study.ask(distributions)
        study.tell(trial, score(values_of(trial.params)))
    return values_of(study.best_params)
