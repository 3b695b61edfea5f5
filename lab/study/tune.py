"""Find the best values for one arm by Optuna's TPE with pruning; a journal lets a killed search resume."""

from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from bertbench.common.atomic import write_state
from bertbench.results.files import ResultFiles
from lab.study.definition import Definition
from lab.study.trial import RunTrial, Trial, tuned_file

_SAMPLER_SEED = 1  # the same for all arms: their random first trials try the same values
_RUN_SEED = 1000  # the same for every trial, so that they differ in values only; the comparison counts from 1
_PATIENCE = 10  # evaluations before a trial may be stopped: early accuracy predicts little


def tune(definition: Definition, arm: str, folder: Path, run_trial: RunTrial) -> None:
    """Run the rest of the arm's budget, and write the best configuration as a system file.

    The first half of the trials are random and run to their end. TPE proposes the others, which stop where their
    accuracy is below the median of earlier trials. Raises the errors of `run_trial`; finished trials stay.
    """
    best_file = tuned_file(folder, arm)
    if best_file.exists():
        return
    at_random = definition.tuning_trials // 2
    patience = _PATIENCE * definition.trial_system(arm, {}).evaluation_interval
    study = _study(folder, arm)
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=at_random, n_warmup_steps=patience)
    for interrupted in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(interrupted.number, state=TrialState.FAIL)
    space: dict[str, BaseDistribution] = {
        name: FloatDistribution(bounds.low, bounds.high, log=True) for name, bounds in definition.space.items()
    }
    while (ended := len(_ended(study))) < definition.tuning_trials:
        # a new sampler for every trial: a resumed search then samples like an uninterrupted one
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=at_random, seed=_SAMPLER_SEED + ended)
        trial = study.ask(space)

        def is_bad(samples: int, accuracy: float, trial: optuna.Trial = trial) -> bool:
            trial.report(1 - accuracy, samples)
            return trial.should_prune()

        system = definition.trial_system(arm, trial.params)
        files = ResultFiles(folder / "tuning" / arm / f"result_{ended}.txt")
        outcome = run_trial(Trial(f"{arm}, tuning {ended + 1}", system, _RUN_SEED, files), is_bad)
        if outcome.reached:
            study.tell(trial, outcome.samples)
        else:
            study.tell(trial, state=TrialState.PRUNED)
    best = definition.trial_system(arm, min(_ended(study), key=_rank).params)
    best_file.parent.mkdir(exist_ok=True)
    write_state(best_file, best.model_dump(mode="json", by_alias=True))


def tried(folder: Path, arm: str) -> list[tuple[dict[str, float], float | None]]:
    """Return the values of an arm's trials with their samples to target, None if stopped or missed."""
    return [
        (trial.params, trial.value if trial.state == TrialState.COMPLETE else None)
        for trial in _ended(_study(folder, arm))
    ]


def _study(folder: Path, arm: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    return optuna.create_study(storage=storage, study_name=arm, load_if_exists=True)


def _ended(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _rank(trial: FrozenTrial) -> tuple[bool, float]:
    """Order trials that reached the target by samples, then the others by their final error."""
    pruned = trial.state == TrialState.PRUNED
    return pruned, min(trial.intermediate_values.values(), default=1.0) if pruned else trial.value or 0.0
