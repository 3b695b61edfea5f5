"""List hyper-parameters known to train BERT-Large: those of published results and reference convergence points."""

import math
from functools import cache
from typing import NamedTuple

from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject
from bertbench.config import System, load_system, system_names
from bertbench.plan.estimate import reference_points, trains_bert_large

_OPTIMIZER = ("name", "learning_rate", "beta1", "beta2", "epsilon", "weight_decay")
_SCHEDULE = ("max_steps", "warmup_steps", "start_warmup_step")
_DECAY = ("decay_steps", "decay_from", "first_step", "end_learning_rate")  # LAMB's known points have the defaults


class KnownPoint(NamedTuple):
    """A global batch with hyper-parameters, as sections of a system file."""

    batch: int
    settings: JsonObject
    source: str
    base: str
    """The base file of their division."""

    def at(self, batch: int) -> "KnownPoint":
        """Return these hyper-parameters for another batch, marked as untested.

        ADAM's are scaled by its rule. No scaling rule for LAMB is published: its rate stays, and its numbers of steps
        change so that they span the same numbers of samples.
        """
        untested = f"UNTESTED at batch {batch:,}: {self.source}, batch {self.batch:,}"
        if self.settings["optimizer"]["name"] == "adam":
            settings = {**self.settings, "scale_from_batch": self.batch}
            return KnownPoint(batch, settings, f"{untested}, scaled by the square-root rule", self.base)
        steps = {name: round(self.settings["schedule"][name] * self.batch / batch) for name in _SCHEDULE}
        settings = {**self.settings, "schedule": steps, "hardware": {"division": "open"}}
        return KnownPoint(batch, settings, f"{untested}, steps adapted to span the same samples", self.base)


@cache
def known_points() -> dict[int, KnownPoint]:
    """Return a point for each global batch: that of the shipped closed system, or else the reference point."""
    points: dict[int, KnownPoint] = {}
    for batch, (_, values) in reference_points().items():
        settings = {
            "optimizer": {
                "name": "lamb",
                "learning_rate": values["opt_base_learning_rate"],
                "beta1": values["opt_lamb_beta_1"],
                "beta2": values["opt_lamb_beta_2"],
                "epsilon": values["opt_epsilon"],
                "weight_decay": values["opt_lamb_weight_decay_rate"],
            },
            "schedule": {
                "max_steps": values["opt_learning_rate_training_steps"],
                "warmup_steps": values["num_warmup_steps"],
                "start_warmup_step": values["start_warmup_step"],
            },
        }
        points[batch] = KnownPoint(
            batch, settings, f"MLPerf reference convergence point of batch {batch:,}", "base/closed"
        )
    for name in system_names():
        system = load_system(name)
        if system.hardware.division == "closed" and system.source.startswith("published"):
            points[system.global_batch_size] = point_of(system)
    return points


def point_of(system: System) -> KnownPoint:
    """Return a system's hyper-parameters. Raises ConfigError if they are not BERT-Large's."""
    if system.launch.device != "cuda" or not trains_bert_large(system):
        raise ConfigError(f"{system.name}: doesn't train BERT-Large on GPUs; give --from one of the dgx systems")
    schedule = {name: getattr(system.schedule, name) for name in _SCHEDULE}
    if system.optimizer.name == "adam":
        schedule |= {name: getattr(system.schedule, name) for name in _DECAY}
    settings: JsonObject = {
        "optimizer": {name: getattr(system.optimizer, name) for name in _OPTIMIZER},
        "schedule": schedule,
        "clip": {"mode": system.clip.mode},
    }
    if system.evaluation.max_samples is not None:
        settings["evaluation"] = {"max_samples": system.evaluation.max_samples}
    source = f"{system.name}'s hyper-parameters ({system.source})"
    return KnownPoint(system.global_batch_size, settings, source, f"base/{system.hardware.division}")


def nearest_point(batch: int, points: dict[int, KnownPoint]) -> KnownPoint:
    """Return the point of this batch, or else the point of the nearest batch (by ratio), adapted to this batch."""
    nearest = points[min(points, key=lambda known: (abs(math.log(known / batch)), known))]
    return nearest if nearest.batch == batch else nearest.at(batch)
