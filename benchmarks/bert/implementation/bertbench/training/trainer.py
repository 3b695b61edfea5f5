"""Take one optimizer step: accumulate, reduce, apply, publish. And the state that a snapshot saves.

`whole_trainer.py` and `graph_trainer.py` hold the whole model on every rank, `layout_trainer.py` a part of it.
`gradient_path.py` chooses the parts that a step passes through.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import nn

from bertbench.common.paths import weights_file
from bertbench.common.ranges import OPTIMIZER, named
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.model.loss import Scores
from bertbench.model.mimetic import imitate_training
from bertbench.model.shape import BertShape
from bertbench.optim.state import Optimizer, local
from bertbench.results.communication import Communication
from bertbench.results.metrics import StepReport
from bertbench.training.gradient_path import GradientPath


class Trainer(ABC):
    """The model of one rank, or its part of it, and the path from its gradients to updated weights."""

    _path: GradientPath
    passes_per_s = 1.0
    """Forward and backward passes a second in the warm-up, measured where ranks' speeds are."""

    @property
    @abstractmethod
    def model(self) -> nn.Module:
        """Return the module whose parameters this rank updates."""

    @abstractmethod
    def communication(self) -> Communication:
        """Return how gradients are sent and applied, for the run's output and records."""

    @abstractmethod
    def whole(self) -> Bert | None:
        """Return the model with all its weights on rank 0, None on the others. Collective."""

    @abstractmethod
    def _accumulate(self, parts: Sequence[LoadedPart]) -> torch.Tensor:
        """Run forward and backward passes; return this rank's part of the loss."""

    @abstractmethod
    def _named(self) -> dict[str, nn.Parameter]:
        """Return this rank's parameters by the names that a snapshot gives them."""

    @abstractmethod
    def _weights(self) -> dict[str, torch.Tensor]:
        """Return this rank's logical weights by the names that a snapshot gives them."""

    @abstractmethod
    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        """Take steps like the run's and one evaluation on synthetic batches."""

    @property
    def optimizer(self) -> Optimizer:
        """Return the optimizer of the weights that this rank updates."""
        return self._path.optimizer

    def step(self, number: int, parts: Sequence[LoadedPart]) -> StepReport:
        """Take step `number`, counted from 0, with this rank's samples; all of the timed work."""
        return self._update(number, self._accumulate(parts))

    def _update(self, number: int, loss: torch.Tensor) -> StepReport:
        scale, reducer, optimizer, weights, view, *_ = self._path
        reduced = reducer.finish()
        with named(OPTIMIZER):
            weights.ready()
            rate, loss_scale = scale.step(optimizer, number, reduced)
            weights.publish()
            view.after_step(number + 1)
        self._drop_gradients()
        loss = view.reported_loss(loss, reduced.norm)
        return StepReport(loss, reduced.norm, rate, reduced.clipped, loss_scale)

    def _drop_gradients(self) -> None:
        self._path.reducer.drop()

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a context in which the model holds the weights to evaluate: all arrived, or an average. Collective."""
        return self._path.view.evaluating()

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory on which later steps depend: weights, moments, loss scale, sums in progress."""
        self._path.weights.ready()
        names: dict[torch.Tensor, str] = {parameter: name for name, parameter in self._named().items()}
        parts = {
            "model": self._weights(),
            "optimizer": self.optimizer.moments(names),
            "scaler": self._path.scale.state(),
        }
        own = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        return self._path.view.state(names, own | self._path.reducer.state())

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps, once their `state` is restored."""
        self.optimizer.resume(self._path.scale.resume(steps))
        self._path.view.resume(steps)

    def close(self) -> None:
        """Finish what is in progress before the process group ends."""
        self._path.weights.ready()
        self._path.reducer.reset()

    def _warm_up(self, seed: int) -> None:
        """Take untimed steps, then restore weights and optimizer."""
        weights = [(parameter.detach(), local(parameter.detach()).clone()) for parameter in self._named().values()]
        self._take_warm_up_steps(torch.Generator().manual_seed(derive(seed, "warm-up")))
        scale, reducer, optimizer, in_flight, view, *_ = self._path
        in_flight.ready()
        with torch.no_grad():
            for parameter, weight in weights:
                local(parameter).copy_(weight)
        for part in (optimizer, reducer, scale, view):
            part.reset()


def tiny_backward(score: Callable[[Batch], Scores], shape: BertShape) -> None:
    """Run a backward pass on a few tokens, to find the order of its gradients."""
    scores = score(synthetic(1, min(8, shape.max_positions), shape.vocab_size, torch.Generator().manual_seed(1)))
    (scores.masked_lm_MV.sum() + scores.next_sentence_S2.sum()).backward()


def initial_model(system: System, seed: int) -> Bert:
    """Return the whole model with the system's checkpoint, or with weights drawn from the seed.

    Raises CheckpointError if the checkpoint can't be read.
    """
    model = Bert(system.model.shape())
    if system.model.checkpoint is None:
        model.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
        if system.model.initial_weights == "mimetic":
            imitate_training(model)
    else:
        from bertbench.checkpoint.weights import open_weights  # noqa: PLC0415 - pydantic, see above

        open_weights(weights_file(system.model.checkpoint)).put_into(model)
    return model
