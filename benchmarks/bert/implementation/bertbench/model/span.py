"""Define BERT for question answering: it scores every token as the first and as the last of the answer.

Shapes: as in model/bert.py; G sequences of one length N.
"""

import torch
from torch import Tensor, nn

from bertbench.model.bert import Bert, BertInputs, draw_normal
from bertbench.model.sequences import Sequences
from bertbench.model.shape import BertShape

HEAD = "span"


class SpanBert(Bert):
    """A Bert's encoder, followed by one linear layer (Devlin et al. 2018); the pre-training heads stay unused."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__(shape)
        for unused in (self.masked_lm, self.pooler, self.next_sentence):
            unused.requires_grad_(False)
        self.span = nn.Linear(shape.hidden_size, 2)

    def initialize_head(self, generator: torch.Generator) -> None:
        """Draw the layer's matrix as `Bert.initialize` does, and set biases to 0."""
        draw_normal(self.span.weight, self.shape.initializer_range, generator)
        nn.init.zeros_(self.span.bias)

    def forward(self, inputs: BertInputs) -> Tensor:  # type: ignore[override]  # another head, and other outputs
        """Return logits of the answer's first and last token, [T, 2]; nothing is masked."""
        logits_T2: Tensor = self.span(self.hidden(inputs))
        return logits_T2


def head_tensors(shape: BertShape) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the head's parameters."""
    return {f"{HEAD}.weight": (2, shape.hidden_size), f"{HEAD}.bias": (2,)}


def log_softmax(logits_T2: Tensor, sequences: Sequences) -> Tensor:
    """Return log-probabilities among each sequence's own tokens, column by column: [T, 2]."""
    return torch.cat([logits_GN2.log_softmax(1).flatten(0, 1) for logits_GN2 in sequences.grouped(logits_T2)])
