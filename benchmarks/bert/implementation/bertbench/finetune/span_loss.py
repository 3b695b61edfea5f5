"""Compute the loss of fine-tuning: the cross-entropy of an answer's first and last token among those of its sequence.

Shapes: as in model/span.py.
"""

from torch import Tensor

from bertbench.finetune.batches import SpanBatch
from bertbench.loading.batch import Batch
from bertbench.model.span import log_softmax


def span_losses(logits_T2: Tensor, batch: SpanBatch) -> Tensor:
    """Return the mean cross-entropy of an answer's first and last token, softmax over its own sequence: [S]."""
    log_probability_T2 = log_softmax(logits_T2.float(), batch.sequences)
    return -(log_probability_T2[batch.starts_S, 0] + log_probability_T2[batch.ends_S, 1]) / 2


def weighted_span_loss(logits_T2: Tensor, batch: Batch) -> Tensor:
    """Return a part's share of the global batch's mean loss."""
    assert isinstance(batch, SpanBatch), "fine-tuning's batches have answers"
    return batch.weight * span_losses(logits_T2, batch).sum()
