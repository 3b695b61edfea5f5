"""Validate a whole system file, which describes one machine and one run, and scale its recipe to its batch."""

import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import PrivateAttr, model_validator

from bertbench.config.checks import problems
from bertbench.config.settings import Settings


class System(Settings):
    """One system file: settings that fit together. No file states what follows from other settings."""

    _path: str | None = PrivateAttr(default=None)
    _given: dict[str, str] = PrivateAttr(default_factory=dict)
    _stated: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def argument(self) -> str:
        """Return a command's name for this system: the path of its file, or its name if it comes with the project."""
        return self._path or self.name

    @property
    def given(self) -> Mapping[str, str]:
        """Return the settings that a user gave by hand, by dotted name, each with the option that gave it."""
        return self._given

    @property
    def stated(self) -> Mapping[str, Any]:
        """Return the settings that the system file, or a file that it extends, states: dotted name -> value."""
        return self._stated

    def from_origins(self, path: str | None, given: Mapping[str, str], stated: Mapping[str, Any]) -> Self:
        """Return this system with its origins: its path, if it isn't shipped, and its `given` and `stated` settings."""
        copy = self.model_copy()
        copy._path = path
        copy._given = dict(given)
        copy._stated = dict(stated)
        return copy

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        lines = list(problems(self))
        if lines:
            raise ValueError("\n".join(lines))
        return self


def scaled_to_its_batch(system: System) -> System:
    """Return the system with hyper-parameters scaled from the batch at which they were tuned to the system's own batch.

    Without `scale_from_batch`, they stay as they are. With k = batch / scale_from_batch, both rules divide steps by k,
    so that the schedule spans the same number of samples.

    - `root`, for Adam: rate times sqrt(k), 1 - beta times k, epsilon over sqrt(k) (Malladi et al. 2022, "On the SDEs
      and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287). Weight decay times sqrt(k), so that
      rate * decay summed over the run stays the same. The rules for decay and steps are our own.
    - `linear`, derived for SGD: rate times k (Goyal et al. 2017, arXiv 1706.02677), which keeps that sum, too.
    """
    if system.scale_from_batch is None:
        return system
    ratio = system.global_batch_size / system.scale_from_batch
    tuned, schedule = system.optimizer, system.schedule
    if system.scale_rule == "linear":
        rate_ratio = ratio
        scaled = {}
    else:
        rate_ratio = math.sqrt(ratio)
        scaled = {
            "beta1": 1 - (1 - tuned.beta1) * ratio,
            "beta2": 1 - (1 - tuned.beta2) * ratio,
            "epsilon": tuned.epsilon / rate_ratio,
            "weight_decay": tuned.weight_decay * rate_ratio,
        }
    optimizer = tuned.model_copy(update={"learning_rate": tuned.learning_rate * rate_ratio, **scaled})
    steps = {
        "max_steps": round(schedule.max_steps / ratio),
        "decay_steps": round((schedule.decay_steps or schedule.max_steps) / ratio),
        "warmup_steps": round(schedule.warmup_steps / ratio),
        "start_warmup_step": round(schedule.start_warmup_step / ratio),
        "end_learning_rate": schedule.end_learning_rate * rate_ratio,
    }
    # not scaled again later: the configuration that a run records is the one that it used
    used_up = {"scale_from_batch": None, "scale_rule": None}
    return system.model_copy(update={"optimizer": optimizer, "schedule": schedule.model_copy(update=steps), **used_up})
