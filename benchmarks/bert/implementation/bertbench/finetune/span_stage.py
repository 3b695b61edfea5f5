"""Define a pipeline stage of a model that is fine-tuned; the span head follows the last layer."""

from torch import Tensor, nn

from bertbench.finetune.span_loss import weighted_span_loss
from bertbench.loading.batch import Batch
from bertbench.loading.sampler import Part
from bertbench.model.bert import Bert
from bertbench.model.span import SpanBert
from bertbench.parallel.stage import Stage


class SpanStage(Stage):
    """Stage `number` of `stages` of a SpanBert: the last one returns [T, 2] logits, or their loss."""

    span: nn.Linear

    def take_heads(self, model: Bert) -> None:
        """Take the span head; see `Stage`."""
        assert isinstance(model, SpanBert), "its stages are those of a model with a span head"
        self.span = model.span

    @property
    def words(self) -> nn.Parameter | None:
        """Return None, because only the first stage reads the word embeddings."""
        return None

    def evaluated(self, hidden_TD: Tensor, batch: Batch) -> Tensor:
        """Return logits of the answer's first and last token, [T, 2]; see `Stage`."""
        del batch
        logits_T2: Tensor = self.span(hidden_TD)
        return logits_T2

    def loss(self, hidden_TD: Tensor, part: Part, batch: Batch) -> Tensor:
        """Return the weighted losses of the batch's answers; see `Stage`."""
        del part
        return weighted_span_loss(self.evaluated(hidden_TD, batch), batch)
