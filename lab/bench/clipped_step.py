"""A whole step of a small BERT that clips in one mode, with or without the sum over the ranks, for `lab overlap`."""

from functools import partial
from typing import get_args

import torch
from torch.nn import functional

from bertbench.config.optimizer import ClipMode, Communication, OptimizerSettings
from bertbench.loading.batch import Batch
from bertbench.model.bert import Bert
from bertbench.model.options import PrecisionName
from bertbench.model.precision import computing
from bertbench.model.shape import BertShape
from bertbench.optim.buckets import Buckets, bucket_table
from bertbench.optim.build import build_optimizer
from bertbench.optim.clip import gradient_norm, make_clip
from bertbench.optim.exchange import Exchange, Wait
from bertbench.optim.gradient_sum import ElementSum
from bertbench.optim.reducer import GradientReducer
from lab.bench.harness import milliseconds

MODES: tuple[ClipMode, ...] = get_args(ClipMode)
_MAX_NORM = 0.1  # small enough to clip always


class _Switched(Exchange):
    """Sum over the ranks, or skip it."""

    on = True

    def sum(self, buffer: torch.Tensor) -> Wait:
        """See `Exchange`."""
        return super().sum(buffer) if self.on else self.gather(buffer)


class ClippedStep:
    """A model that clips in one mode; its steps go without the sum over the ranks unless `sum.on`."""

    def __init__(
        self,
        mode: ClipMode,
        ranks: int,
        shape: BertShape,
        device: torch.device,
        precision: PrecisionName,
        bucket_mb: float | None,
    ) -> None:
        self.model = Bert(shape)
        self.model.initialize(torch.Generator().manual_seed(1))
        self.model.to(device)
        self.sum = _Switched()
        self._computing = partial(computing, precision, device)
        order = list(self.model.parameters())[::-1]  # about the order of the gradients
        buckets = Buckets(bucket_table(order, bucket_mb))
        clip, norm = make_clip(mode, _MAX_NORM, ranks, len(buckets.all)), partial(gradient_norm, order)
        self.reducer = GradientReducer(buckets, clip, ElementSum(Communication(), self.sum), norm)
        self._optimizer, _ = build_optimizer(self.model, OptimizerSettings(name="adam", learning_rate=1e-4))

    def take(self, batch: Batch) -> None:
        """Take a whole step."""
        loss = self._loss(batch)
        loss.backward()
        self._optimizer.step(1e-4, self.reducer.finish().factor)
        self.reducer.drop()

    def backward_ms(self, batch: Batch) -> float:
        """Return milliseconds from the start of a backward pass to the end of the reduction; take no step."""
        loss = self._loss(batch)

        def backward() -> None:
            loss.backward()
            self.reducer.finish()

        taken = milliseconds(backward)
        self.reducer.drop()
        return taken

    def _loss(self, batch: Batch) -> torch.Tensor:
        with self._computing():
            scores = self.model(*batch.inputs)
        loss = functional.cross_entropy(scores.masked_lm_MV.float(), batch.masked_labels_M)
        return loss + functional.cross_entropy(scores.next_sentence_S2.float(), batch.next_sentence_S)
