"""Take one optimizer step of fine-tuning: forward, backward with the sum of gradients, clip, AdamW.

Shapes: as in model/span.py.
"""

from functools import partial

import torch
from torch import Tensor

from bertbench.config import System
from bertbench.config.optimizer import LearningRate
from bertbench.distributed.world import World
from bertbench.finetune.batches import Share, SpanBatch
from bertbench.gradients.buckets import Buckets, bucket_table
from bertbench.gradients.clip import ClipAfter, gradient_norm
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import ElementSum
from bertbench.gradients.reducer import GradientReducer
from bertbench.model.arithmetic import computing
from bertbench.model.options import PrecisionName, unmeasured_precision
from bertbench.model.span import SpanBert, log_softmax
from bertbench.optim.build_optimizer import build_optimizer
from bertbench.results.metrics import StepReport


def span_losses(logits_T2: Tensor, batch: SpanBatch) -> Tensor:
    """Return the mean cross-entropy of an answer's first and last token, softmax over its own sequence: [S]."""
    log_probability_T2 = log_softmax(logits_T2, batch.batch.sequences)
    return -(log_probability_T2[batch.starts_S, 0] + log_probability_T2[batch.ends_S, 1]) / 2


def logits_of(model: torch.nn.Module, batch: SpanBatch, precision: PrecisionName, device: torch.device) -> Tensor:
    """Return the model's logits in fp32: [T, 2]."""
    inputs = batch.batch
    with computing(precision, device):
        logits_T2 = model(inputs.tokens_T, inputs.segments_T, inputs.positions_T, inputs.sequences)
    return logits_T2.float()


class SpanTrainer:
    """One rank's model and optimizer; gradients are summed uncompressed behind the backward pass."""

    def __init__(self, system: System, world: World, model: SpanBert, schedule: LearningRate) -> None:
        self._world = world
        self.schedule, self.model = schedule, model
        self.precision = unmeasured_precision(system.precision.compute)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        communication = system.communication
        buckets = Buckets(bucket_table(parameters[::-1], communication.bucket_mb, communication.buckets))
        clip, norm = ClipAfter(system.finetune.max_norm), partial(gradient_norm, parameters)
        self._reducer = GradientReducer(buckets, clip, ElementSum(system.communication, Exchange()), norm)
        self._optimizer, self.arithmetic = build_optimizer(model, system.finetune.optimizer())

    def step(self, number: int, share: Share) -> StepReport:
        """Take step `number`, counted from 0."""
        batch = share.batch.to(self._world.device)
        logits_T2 = logits_of(self.model, batch, self.precision, self._world.device)
        loss = share.weight * span_losses(logits_T2, batch).sum()
        loss.backward()
        reduced, rate = self._reducer.finish(), self.schedule.rate(number)
        self._optimizer.step(rate, reduced.factor)
        self._reducer.drop()
        return StepReport(loss.detach(), reduced.norm, rate, reduced.clipped, None)
