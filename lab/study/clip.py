"""Compare settings of a system by samples to target, each trial an ordinary run of real ranks on this machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from bertbench.common.progress import Progress
from bertbench.common.section import Count, Section
from bertbench.config import System, load_system
from bertbench.results.files import ResultFiles
from lab.study.definition import Range, Tuning, read_study
from lab.study.engine import Arm, Budget, Outcome, Study, Values
from lab.study.trial import Trial, run_trial

_PATIENCE = 1.5  # times the samples of an arm's best trial: a worse one has nothing to add


class Pair(Section):
    """Two arms whose difference the study reports."""

    arm: str
    against: str


class Definition(Section):
    """One study."""

    question: str
    """The question it answers, in a line."""
    system: str
    """The system that every trial runs; a path is relative to the definition's folder."""
    arms: Annotated[dict[str, dict[str, Any]], Field(min_length=2)]
    """The settings that each arm changes, by its name."""
    space: Annotated[dict[str, Range], Field(min_length=1)]
    """The values tuned for every arm, with the same budget each."""
    tuning_trials: Count
    """The budget: runs for each arm, with seeds that the comparison doesn't use."""
    comparisons: tuple[Pair, ...] = ()
    trained: Annotated[dict[str, Any], Field(default_factory=dict)]
    """The system's content, so that a folder holds trials of one; filled in here."""

    @model_validator(mode="after")
    def _compares_arms(self) -> Self:
        named = {name for pair in self.comparisons for name in (pair.arm, pair.against)}
        if unknown := sorted(named - set(self.arms)):
            raise ValueError(f"comparisons: found no arm {', '.join(unknown)}; choose of {', '.join(self.arms)}")
        return self

    def trial_system(self, arm: str, values: Mapping[str, float]) -> System:
        """Return the system of an arm with these values; raises ConfigError if they don't fit it."""
        settings = {**self.arms[arm], **values, "checkpoint.final_weights": False}  # thousands of trials
        return load_system(self.system, [f"{name}={json.dumps(value)}" for name, value in settings.items()])


def read_definition(path: Path) -> Definition:
    """Read a study of real ranks; raises what `read_study` raises."""
    definition = read_study(path, Definition)
    system = definition.system
    if system.endswith(".json"):
        system = str(path.parent / system)
    content = load_system(system).model_dump(mode="json", by_alias=True)
    return definition.model_copy(update={"system": system, "trained": content})


def clip_study(definition: Definition, folder: Path, parallel: int, progress: Progress) -> Study:
    """Return the study of real ranks in a folder, `parallel` trials at a time."""
    arms = [
        Arm(name, settings, tuple(pair.against for pair in definition.comparisons if pair.arm == name))
        for name, settings in definition.arms.items()
    ]

    def run(arm: Arm, values: Values, seed: int, most: float) -> Outcome:
        system = definition.trial_system(arm.name, values)
        named = "_".join((str(seed), *(f"{value:.4g}" for value in values.values())))
        files = ResultFiles(folder / "runs" / arm.name / f"result_{named}.txt")
        trial = Trial(f"{arm.name}, seed {seed}", system, seed, files)
        return run_trial(trial, lambda samples, _: samples >= most or study.ending.is_set(), parallel)

    system = definition.trial_system(arms[0].name, {})
    tuning = Tuning(trials=definition.tuning_trials, finalists=1, finalist_seeds=1, patience=_PATIENCE)
    budget = Budget(definition.space, tuning, system.max_steps * system.global_batch_size)
    study = Study(definition, folder, arms, run, progress, budget, parallel)
    return study
