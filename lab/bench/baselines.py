"""Build the baselines of `lab step`: transformers' BertForPreTraining, from stock use to the strongest variant.

Stock variants pad to the longest sample of a batch. In a batch of five or more of Wikipedia's lengths, one sample has
512 tokens, the model's maximum. Strong variants pass only masked positions to the head. Some of them pad too; others,
like ModernBERT, don't pad: their layers see one row of tokens, and torch's scaled_dot_product_attention runs on each
sequence, or on a GPU its flash kernel runs on all sequences at once.
Shapes: S sequences, N tokens of the longest, T tokens in all, M masked tokens, D features, K heads, H features of one.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bertbench.data.store.columns import Columns
from bertbench.loading.batch import batch_of
from bertbench.model.arithmetic import computing
from bertbench.model.attention import flash_kernel
from bertbench.model.loss import IGNORED
from bertbench.model.options import PrecisionName
from bertbench.model.sequences import Sequences
from bertbench.model.shape import BertShape
from lab.bench import stock
from lab.bench.step_process import Step

LEARNING_RATE = 1e-4
_UNPADDED = "per_sequence"
_FLASH = "unpadded_kernel"  # transformers would search the network for a name that begins with flash


class Baseline(NamedTuple):
    """A variant of transformers' BERT."""

    name: str
    attention: str
    strong: bool = False
    """Whether heads read only masked positions."""
    grouped: bool = False
    """Whether batches group similar lengths, so that they aren't random samples of the data."""
    compiled: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    """The devices on which it runs."""


BASELINES = (
    Baseline("transformers eager, padded to the longest", "eager"),
    Baseline("transformers sdpa, padded to the longest", "sdpa"),
    Baseline("transformers sdpa + torch.compile, padded to the longest", "sdpa", compiled=True),
    Baseline("transformers sdpa, group_by_length", "sdpa", grouped=True),
    Baseline("masked heads, padded to the longest", "sdpa", strong=True),
    Baseline("masked heads, group_by_length", "sdpa", strong=True, grouped=True),
    Baseline("masked heads, unpadded", _UNPADDED, strong=True),
    Baseline("masked heads, unpadded, flash attention", _FLASH, strong=True, devices=("cuda",)),
)


def build_baseline(device: torch.device, baseline: Baseline, shape: BertShape, dtype: PrecisionName, seed: int) -> Step:
    """Return a step of a baseline."""
    torch.manual_seed(seed)
    model = stock.stock_model(shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, fused=True)
    program = torch.compile(model) if baseline.compiled else model

    def step(content: Columns) -> None:
        with computing(dtype, device):
            loss = baseline_loss(baseline, program, content, device)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def baseline_loss(baseline: Baseline, model: Any, content: Columns, device: torch.device) -> Tensor:
    """Return the sum of the mean losses of both heads."""
    if baseline.attention in (_UNPADDED, _FLASH):
        return _unpadded_loss(model, baseline.attention, content, device)
    model.set_attn_implementation(baseline.attention)
    tensors = {name: tensor.to(device) for name, tensor in stock.padded(content).items()}
    if not baseline.strong:
        loss: Tensor = model(**tensors).loss
        return loss
    labels_SN, pairs_S = tensors.pop("labels"), tensors.pop("next_sentence_label")
    encoded = model.bert(**tensors)
    masked_SN = labels_SN != IGNORED
    return _loss_of_heads(
        model, encoded.last_hidden_state[masked_SN], labels_SN[masked_SN], encoded.pooler_output, pairs_S
    )


def _unpadded_loss(model: Any, attention: str, content: Columns, device: torch.device) -> Tensor:
    from transformers import AttentionInterface  # noqa: PLC0415 - takes seconds, and is an extra

    AttentionInterface.register(_UNPADDED, _attention_per_sequence)
    AttentionInterface.register(_FLASH, _flash_attention)
    model.set_attn_implementation(attention)  # then layers accept one row of tokens, with `lengths` and `sequences`
    batch = batch_of(content).to(device)
    hidden_TD = model.bert(
        input_ids=batch.tokens_T[None],
        token_type_ids=batch.segments_T[None],
        position_ids=batch.positions_T[None],
        lengths=content.lengths.tolist(),
        sequences=batch.sequences,
    ).last_hidden_state[0]
    first_S = torch.from_numpy(np.cumsum(content.lengths) - content.lengths).to(device)
    pooled_SD = model.bert.pooler(hidden_TD[first_S, None])
    return _loss_of_heads(model, hidden_TD[batch.masked_at_M], batch.masked_labels_M, pooled_SD, batch.next_sentence_S)


def _attention_per_sequence(
    _module: Any, query_1KTH: Tensor, key_1KTH: Tensor, value_1KTH: Tensor, _mask: None, *, dropout: float,
    scaling: float, lengths: list[int], **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query_1KTH, key_1KTH, value_1KTH)), strict=True)
    attended = [
        functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scaling).transpose(1, 2)
        for query, key, value in parts
    ]
    return torch.cat(attended, dim=1), None


def _flash_attention(
    _module: Any, query_1KTH: Tensor, key_1KTH: Tensor, value_1KTH: Tensor, _mask: None, *, dropout: float,
    sequences: Sequences, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    query_TKH, key_TKH, value_TKH = (tensor[0].transpose(0, 1) for tensor in (query_1KTH, key_1KTH, value_1KTH))
    return flash_kernel(query_TKH, key_TKH, value_TKH, sequences, dropout)[None], None


def _loss_of_heads(model: Any, hidden_MD: Tensor, labels_M: Tensor, pooled_SD: Tensor, pairs_S: Tensor) -> Tensor:
    scores_MV, scores_S2 = model.cls(hidden_MD, pooled_SD)
    return functional.cross_entropy(scores_MV, labels_M) + functional.cross_entropy(scores_S2, pairs_S)
