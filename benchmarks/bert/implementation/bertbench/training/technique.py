"""Let a study replace parts of training: who gets which samples, the sum of gradients, the optimizer and its rates.

A technique is a class that overrides what it changes; its fields are its options. A run of the product has
`EVERY_STEP`, which changes nothing: ranks sum their gradients in every step. Other techniques are in lab/techniques.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from bertbench.balance.assignment import Assign
from bertbench.common.errors import ConfigError
from bertbench.common.json_object import JsonObject
from bertbench.common.section import Section
from bertbench.config import System
from bertbench.config.optimizer import LearningRate
from bertbench.config.rules import Rule, allow_only, broken_rules
from bertbench.gradients.buckets import ModelWeights
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import GradientSum
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.optim.average import EvaluationView
from bertbench.optim.interface import Optimizer

if TYPE_CHECKING:
    from bertbench.checkpoint.resumption import Resumption


_PLANNED = allow_only(
    {"data.balance": ("planned", "planned_local"), "data.equal_counts": (False,)},
    where=lambda _: True,
    because="doesn't go with a technique that assigns samples itself",
    instead="leave out --technique",
)


class Technique(Section):
    """How ranks train together, for models that are whole on every rank. This class changes nothing."""

    name: ClassVar[str] = "every_step"
    rules: ClassVar[tuple[Rule, ...]] = ()
    """What it asks of a system."""
    state_by_rank: ClassVar[bool] = False
    """Whether each rank has a state of its own, so that a run can resume only on as many ranks."""
    takes_snapshots: ClassVar[bool] = True
    """Whether a snapshot holds all that later steps depend on."""

    def check(self, system: System) -> None:
        """Raise ConfigError with every rule that the system breaks."""
        rules = self.rules if self.assign is None else (*self.rules, *_PLANNED)
        problems = list(broken_rules(rules, system))
        if problems:
            raise ConfigError("\n".join(problems))

    @property
    def report_steps(self) -> int:
        """Return the steps between the small sums of metrics and signals, each of which waits for all ranks."""
        return 1

    @property
    def assign(self) -> Assign | None:
        """Return what assigns a step's samples to ranks; None for the assignment by cost of `data.balance`.

        It is a pure function, because every rank calls it for itself.
        """
        return None

    def gradient_sum(self, exchange: Exchange) -> GradientSum | None:
        """Return what sums the gradients over the ranks; None for the sum of `communication.compression`.

        `exchange` sums a buffer over all ranks. Collective.
        """
        del exchange
        return None

    def learning_rate(self, schedule: LearningRate) -> LearningRate:
        """Return the rates by step, given those of the system's schedule."""
        return schedule

    def optimizer(self, optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> Optimizer:
        """Return what updates the model's parameters, given the system's optimizer."""
        del parameters
        return optimizer

    def view(self, weights: ModelWeights, tensors: LogicalTensors, exchange: Exchange) -> EvaluationView | None:
        """Return what follows each update and an evaluation sees; None for the system's own.

        `tensors` are the model's trained weights. A view that changes them then calls `refresh` of `weights`.
        """
        del weights, tensors, exchange
        return None

    def record(self) -> JsonObject:
        """Return its name and options, as a run's files state them; empty for EVERY_STEP."""
        return {} if self == EVERY_STEP else {"name": self.name, **self.model_dump(mode="json")}

    def configuration(self, system: System) -> JsonObject:
        """Return the whole configuration of a run: the system's settings, and the technique if it changes anything."""
        content: JsonObject = system.model_dump(mode="json", by_alias=True)
        record = self.record()
        return {**content, "technique": record} if record else content


EVERY_STEP = Technique()
"""Ranks sum their gradients in every step."""


def check_resumed(resumption: "Resumption", technique: Technique, system: System) -> None:
    """Raise ConfigError if a run can't resume from the snapshot because of its technique."""
    meta = resumption.meta
    begun, now = meta.config.get("technique", {}), technique.record()
    if begun != now:
        raise ConfigError(
            f"{resumption.path}: began with {_in_words(begun)}, found {_in_words(now)}; resume with the technique that "
            "the run began with, by `bertbench lab train` unless it is every_step"
        )
    if technique.state_by_rank and meta.ranks != system.world_size:
        raise ConfigError(
            f"{resumption.path}: began on {meta.ranks} ranks, found {system.world_size}; technique {technique.name} "
            f"keeps state on each rank: resume with {meta.ranks} ranks"
        )


def _in_words(record: JsonObject) -> str:
    """Return a technique's name and options, as `lab train` takes them."""
    if not record:
        return f"--technique {EVERY_STEP.name}"
    options = [f"{name}={value}" for name, value in record.items() if name != "name"]
    return " ".join(["--technique", str(record["name"]), *options])
