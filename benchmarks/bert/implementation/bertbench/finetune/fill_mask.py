"""Predict the tokens at each [MASK] of a text with a trained model.

Shapes: T tokens of the text, M masked ones, V entries of the vocabulary.
"""

from typing import Any

import numpy as np
import torch

from bertbench.checkpoint.tensor_names import has_padding
from bertbench.checkpoint.weights_file import Weights
from bertbench.common.errors import ConfigError
from bertbench.data.store.columns import Columns
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.loading.batch import Batch, batch_of
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.bert import Bert

MASK = "[MASK]"
_CPU = torch.device("cpu")


def fill_mask(weights: Weights, vocabulary: Vocabulary, text: str, top: int) -> list[list[dict[str, Any]]]:
    """Return the `top` best tokens for each [MASK] of the text with their probabilities; in fp32, on the CPU.

    Raises ConfigError if the text has no [MASK] or more tokens than the model has positions, or if the vocabulary
    isn't the model's; CheckpointError if the weights can't be read.
    """
    entries = len(vocabulary)
    if entries != weights.real_vocab_size and not has_padding(weights.real_vocab_size, entries):
        raise ConfigError(
            f"the vocabulary has {entries:,} entries, but {weights.path} has {weights.real_vocab_size:,}; give "
            "--vocab the vocab.txt that the model was trained with"
        )
    batch = _batch(text, vocabulary, weights.shape.max_positions)
    model = Bert(weights.shape)
    weights.put_into(model)
    set_arithmetic(model, _CPU, "fp32", "none")
    model.eval()
    with torch.no_grad():
        scores = model(batch.inputs)
    best = scores.masked_lm_MV[:, :entries].softmax(dim=-1).topk(min(top, entries))
    candidates = []
    for tokens, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        of_mask = zip(tokens, shares, strict=True)
        candidates.append([{"token": vocabulary.tokens[token], "probability": share} for token, share in of_mask])
    return candidates


def _batch(text: str, vocabulary: Vocabulary, max_positions: int) -> Batch:
    """Return the text as one sequence, [CLS] text [SEP], with masked tokens at each [MASK]."""
    between = list(vocabulary.encode(text.split(MASK)))
    if len(between) == 1:
        raise ConfigError(f"{text!r}: found no {MASK}; put {MASK} where the model should predict a word")
    mask = vocabulary.ids[MASK]
    inner = [token for part in between for token in (mask, *part)][1:]
    ids = np.array([vocabulary.ids["[CLS]"], *inner, vocabulary.ids["[SEP]"]])
    if len(ids) > max_positions:
        raise ConfigError(
            f"the text has {len(ids)} tokens, including [CLS] and [SEP], but the model has {max_positions} positions; "
            "shorten the text"
        )
    masked = np.flatnonzero(ids == mask)
    return batch_of(
        Columns(
            lengths=np.array([len(ids)]),
            masked=np.array([len(masked)]),
            input_ids=ids,
            segment_ids=np.zeros(len(ids), np.int8),
            masked_lm_positions=masked,
            masked_lm_ids=ids[masked],
            next_sentence_labels=np.zeros(1, np.int8),
        )
    )
