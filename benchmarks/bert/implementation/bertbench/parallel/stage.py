"""One stage of BERT: some of its layers, with the embeddings before the first and the heads behind the last.

Parameters keep their names, so that a state moves between layouts; query, key and value are three matrices here, so
that each can be split. Shapes: as in model/bert.py; T is the same in every microbatch that goes through a pipeline.
"""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from bertbench.loading.loader import LoadedPart
from bertbench.model.arithmetic import computing
from bertbench.model.bert import Bert, WithHeads
from bertbench.model.compiled import compile_part
from bertbench.model.encoder import EncoderLayer
from bertbench.model.loss import weighted_loss
from bertbench.model.options import PrecisionName


class Projection(nn.ModuleList):
    """Query, key and value of a layer side by side, as one fused matrix gives them."""

    def __init__(self, qkv: nn.Linear) -> None:
        super().__init__()
        for weight, bias in zip(qkv.weight.detach().chunk(3), qkv.bias.detach().chunk(3), strict=True):
            part = nn.Linear(qkv.in_features, len(weight), device="meta")
            part.weight, part.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
            self.append(part)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """[T, D] in, [T, 3 D] out, or a rank's heads of it."""
        return torch.cat([part(hidden_TD) for part in self], dim=-1)


class Stage(WithHeads):
    """Stage `number` of `stages`: it takes its modules out of `model`, which is incomplete afterwards."""

    def __init__(self, model: Bert, number: int, stages: int, precision: PrecisionName) -> None:
        super().__init__()
        self.is_first, self.is_last = number == 0, number == stages - 1
        self.microbatches: Sequence[LoadedPart] = ()
        """The microbatches of the current step, by `place`."""
        self._precision = precision
        share = len(model.layers) // stages
        self.layers = nn.ModuleDict(
            {str(layer): model.layers[layer] for layer in range(number * share, (number + 1) * share)}
        )
        for layer in self.encoder_layers():
            layer.qkv = Projection(layer.qkv)  # type: ignore[assignment]
        if self.is_first:
            self.embeddings: nn.Module = model.embeddings
        if self.is_last:
            if not self.is_first:
                self.embeddings = nn.ModuleDict({"word": model.embeddings.word})
            self.masked_lm, self.pooler, self.next_sentence = model.masked_lm, model.pooler, model.next_sentence

    def fuse(self) -> None:
        """Compile everything but attention, and gather and split of weights; not for tensor-parallel layers.

        Their products run as hooks of modules on sharded tensors, which the compiled code doesn't call.
        """
        heads = (self.masked_lm, self.pooler, self.next_sentence) if self.is_last else ()
        pieces = chain((self.embeddings,) if self.is_first else (), heads)
        self.sum_losses = compile_part(pieces, self.encoder_layers())

    def encoder_layers(self) -> list[EncoderLayer]:
        """Return this stage's layers, first to last."""
        return [layer for layer in self.layers.values() if isinstance(layer, EncoderLayer)]

    @property
    def words(self) -> nn.Parameter | None:
        """The word embeddings, which the first and the last stage hold."""
        return self.get_parameter("embeddings.word.weight") if self.is_first or self.is_last else None

    def forward(self, received: Tensor, place: Tensor) -> Tensor:
        """Compute microbatch `place`, [1], from the previous stage's hidden states: [T, D] in and out.

        The first stage ignores `received`. The last returns the loss, [1], or in evaluation mode the scores of the
        masked tokens, [M, V].
        """
        part, batch = self.microbatches[int(place)]
        with computing(self._precision, batch.tokens_T.device):
            hidden_TD = received
            if self.is_first:
                hidden_TD = self.embeddings(batch.tokens_T, batch.segments_T, batch.positions_T)
            for layer in self.layers.values():
                hidden_TD = layer(hidden_TD, batch.sequences)
            if not self.is_last:
                return hidden_TD.to(wire_format(self._precision))
            words_VD = self.words
            assert words_VD is not None
            masked_MD = hidden_TD[batch.masked_at_M]
            if not self.training:
                return self.masked_lm(masked_MD, words_VD)
            first_SD = hidden_TD[batch.sequences.cu_seqlens_S1[: len(batch.next_sentence_S)]]
            scores = self.heads(masked_MD, first_SD, words_VD, batch.labels)
        # no view: FSDP2 and the pipeline change their inputs in place
        loss = weighted_loss(scores, *batch.labels, part.masked_lm_weight, part.next_sentence_weight)
        return torch.stack((loss,))


def wire_format(precision: str) -> torch.dtype:
    """Return the dtype of hidden states between stages."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def logical_name(name: str) -> str:
    """Return a stage parameter's name in a state that moves between layouts: `qkv.weight.0` for `qkv.0.weight`."""
    *path, last, kind = name.split(".")
    return ".".join((*path, kind, last)) if last.isdecimal() else name
