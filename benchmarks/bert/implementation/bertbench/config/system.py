"""A whole system file, validated: one machine, one run."""

import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import PrivateAttr, model_validator

from bertbench.config.checks import problems
from bertbench.config.settings import Settings


class System(Settings):
    """One system file: settings that fit together. What follows from other settings is not typed in."""

    _path: str | None = PrivateAttr(default=None)
    _given: dict[str, str] = PrivateAttr(default_factory=dict)
    _stated: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def argument(self) -> str:
        """What a command calls this system: its file's path, or its name where it comes with the project."""
        return self._path or self.name

    @property
    def given(self) -> Mapping[str, str]:
        """Settings that were given by hand, by dotted name, each with the option that gave it."""
        return self._given

    @property
    def stated(self) -> Mapping[str, Any]:
        """Settings that the system file or a file that it extends states, by dotted name, each with its value."""
        return self._stated

    def from_origins(self, path: str | None, given: Mapping[str, str], stated: Mapping[str, Any]) -> Self:
        """Return this system with where it comes from: its path, if it isn't shipped, and `given` and `stated`."""
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
    """Return the system with hyper-parameters tuned at `scale_from_batch`, if given, carried over to its own batch.

    With k = batch / batch they were tuned at, both rules divide steps by k: the schedule spans the same samples.

    - `root`, for Adam: rate times sqrt(k), 1 - beta times k, epsilon over sqrt(k) (Malladi et al. 2022, "On the SDEs
      and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287). Weight decay times sqrt(k), so that
      rate * decay summed over the run stays the same: this and the steps are ours.
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
    # Done once: the configuration that a run writes down is the one that it used.
    used_up = {"scale_from_batch": None, "scale_rule": None}
    return system.model_copy(update={"optimizer": optimizer, "schedule": schedule.model_copy(update=steps), **used_up})
