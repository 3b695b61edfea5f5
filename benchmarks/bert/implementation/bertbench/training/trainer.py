"""Take one optimizer step (accumulate, reduce, apply, publish), and provide the state that a snapshot saves.

The trainers in `whole_trainer.py` and `graph_trainer.py` hold the whole model on every rank; the one in
`layout_trainer.py` holds a part of it. `gradient_path.py` chooses the parts through which a step passes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import OPTIMIZER
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import local
from bertbench.optim.interface import Optimizer
from bertbench.runs.metrics import StepReport
from bertbench.training.gradient_path import GradientPath
from bertbench.training.step_description import StepDescription

if TYPE_CHECKING:
    from bertbench.common.stage_times import StageTime


class Trainer(ABC):
    """One rank's model, or its part of the model, and the path from its gradients to updated weights."""

    _system: System
    _world: World
    _path: GradientPath
    _model_arithmetic: str

    @property
    @abstractmethod
    def model(self) -> nn.Module:
        """Return the module whose parameters this rank updates."""

    def describe_step(self) -> StepDescription:
        """Describe how gradients are sent and applied, for the run's output and files."""
        path = self._path
        clip = self._system.clip
        bucket_elements = path.reducer.elements
        return StepDescription(
            clip=clip.mode,
            compression=self._system.communication.compression,
            bucket_elements=bucket_elements,
            bytes_per_step=path.reducer.bytes_per_step(),
            model_arithmetic=self._model_arithmetic,
            optimizer_arithmetic=path.arithmetic,
            technique=path.technique,
            clips_the_sum=path.clips_the_sum,
            clip_limit=clip.limit(len(bucket_elements)),
            clip_divisor=clip.root_of(len(bucket_elements)),
            clipped_parts=self._system.clipped_parts,
            transport=path.transport,
        )

    @abstractmethod
    def gather_model(self) -> Bert | None:
        """Return the model with all its weights on rank 0, and None on other ranks. Collective."""

    @abstractmethod
    def _accumulate(self, parts: Sequence[LoadedPart]) -> Tensor:
        """Run forward and backward passes; return this rank's part of the loss."""

    @abstractmethod
    def _named_parameters(self) -> dict[str, nn.Parameter]:
        """Return this rank's parameters by their names in a snapshot."""

    def _logical_weights(self) -> dict[str, Tensor]:
        """Return this rank's logical weights by their names in a snapshot; sharded ones are DTensors."""
        return {name: parameter.detach() for name, parameter in self._named_parameters().items()}

    @abstractmethod
    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        """Take steps like the run's, and one evaluation, on synthetic batches."""

    @property
    def optimizer(self) -> Optimizer:
        """Return the optimizer of the weights that this rank updates."""
        return self._path.optimizer

    def step(self, number: int, parts: Sequence[LoadedPart]) -> StepReport:
        """Take step `number`, counted from 0, with this rank's samples; this includes all of the timed work."""
        loss = self._accumulate(parts)
        return self._update(number, loss)

    def _update(self, number: int, loss: Tensor) -> StepReport:
        """Reduce the gradients, update the weights and publish them; return a report of the step with loss `loss`."""
        path = self._path
        reduced = path.reducer.finish()
        with in_phase(OPTIMIZER):
            path.weights.ready()
            update = path.scale.prepare(number, reduced)
            path.optimizer.step(update.learning_rate, update.factor, update.taken)
            path.scale.advance(update)
            path.weights.publish()
            path.view.after_update(number + 1)
        path.reducer.drop()
        return StepReport(
            loss=loss,
            norm=reduced.norm,
            rate=update.learning_rate,
            clipped=reduced.clipped,
            loss_scale=update.loss_scale,
        )

    def stage_times(self) -> "list[StageTime]":
        """Return the passes and messages that this rank's stages of a pipeline recorded; none without a pipeline."""
        return []

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a context in which the model holds the weights to evaluate: gathered, or an average. Collective."""
        return self._path.view.evaluating()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors on which later steps depend: weights, moments, loss scale, unfinished sums; no copies."""
        self._path.weights.ready()
        names: dict[Tensor, str] = {parameter: name for name, parameter in self._named_parameters().items()}
        rank_state = {f"model.{name}": weight for name, weight in self._logical_weights().items()}
        rank_state |= {f"optimizer.{name}": moment for name, moment in self.optimizer.moments(names).items()}
        rank_state |= {f"scaler.{name}": tensor for name, tensor in self._path.scale.state().items()}
        rank_state |= self._path.reducer.state()
        return self._path.view.state(names, rank_state)

    def resume(self, steps: int) -> None:
        """Continue from the restored `state`, after `steps` steps."""
        self._path.weights.refresh()
        updates = self._path.scale.resume(steps)
        self.optimizer.resume(updates)
        self._path.view.resume(steps)

    def close(self) -> None:
        """Finish communication in progress before the process group ends."""
        self._path.weights.ready()
        self._path.reducer.reset()

    def _warm_up(self, seed: int, startup: Startup | None) -> None:
        """Take untimed steps; then restore the weights and reset the optimizer, and seed this rank's dropout."""
        startup = startup or Startup()
        startup.mark("model")
        weights = [parameter.detach() for parameter in self._named_parameters().values()]
        initial_weights = [local(weight).clone() for weight in weights]
        self._take_warm_up_steps(torch.Generator().manual_seed(derive(seed, "warm-up")))
        path = self._path
        path.weights.ready()
        with torch.no_grad():
            for weight, initial_weight in zip(weights, initial_weights, strict=True):
                local(weight).copy_(initial_weight)
        path.weights.refresh()
        path.optimizer.reset()
        path.reducer.reset()
        path.scale.reset()
        path.view.reset()
        startup.mark("warm-up")
        torch.manual_seed(derive(seed, "dropout", self._system.layout.stream(self._world.rank)))


def full_lengths(system: System) -> Integers:
    """Return the lengths of the samples of one pass, if all are as long as the model allows; at least one sample."""
    return np.full(max(1, system.samples_per_pass), system.model.max_positions)
