"""Build the stock baseline: transformers' BertForPreTraining on padded batches.

Shapes: S sequences, N tokens of the longest sequence.
"""

import importlib.util
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertbench.checkpoint.bert_config import hugging_face_config
from bertbench.data.store.columns import Columns, offsets
from bertbench.model.loss import IGNORED
from bertbench.model.shape import BertShape

PaddedBatch = dict[str, Tensor]


def has_transformers() -> bool:
    """Return whether transformers can be imported."""
    return importlib.util.find_spec("transformers") is not None


def stock_model(shape: BertShape) -> Any:
    """Return transformers' BertForPreTraining of this shape, with our activation and dropout, in training mode."""
    import transformers  # noqa: PLC0415 - takes seconds, and is an extra

    config = transformers.BertConfig.from_dict(hugging_face_config(shape))
    return transformers.BertForPreTraining(config).train()


def padded(content: Columns) -> PaddedBatch:
    """Return samples in transformers' format: tensors [S, N]."""
    samples, width = len(content.lengths), int(content.lengths.max())
    at_S1 = offsets(content.lengths)
    row_T = np.repeat(np.arange(samples), content.lengths)
    column_T = np.arange(len(content.input_ids)) - np.repeat(at_S1[:-1], content.lengths)
    row_M = np.repeat(np.arange(samples), content.masked)

    def spread(values_T: np.ndarray | int) -> np.ndarray:
        table_SN = np.zeros((samples, width), np.int64)
        table_SN[row_T, column_T] = values_T
        return table_SN

    labels_SN = np.full((samples, width), IGNORED, np.int64)
    labels_SN[row_M, content.masked_lm_positions] = content.masked_lm_ids
    arrays = {
        "input_ids": spread(content.input_ids),
        "token_type_ids": spread(content.segment_ids),
        "attention_mask": spread(1),
        "labels": labels_SN,
        "next_sentence_label": content.next_sentence_labels.astype(np.int64),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
