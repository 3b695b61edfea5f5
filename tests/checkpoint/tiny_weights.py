"""Untrained weights of the tests' tiny system, and a weights file of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from bertbench.checkpoint.weights_file import write_weights
from bertbench.model.bert import Bert
from tests.checkpoint.bundles import TINY

PADDED = replace(TINY, vocab_size=97)
CONFIG = {
    "vocab_size": 89,
    "hidden_size": 14,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 23,
    "max_position_embeddings": 29,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.02,
}
"""The tiny system's shape, as the files of google-research/bert state it."""


def tiny_weights(seed: int = 3) -> dict[str, Tensor]:
    model = Bert(PADDED)
    model.initialize(torch.Generator().manual_seed(seed))
    return model.state_dict()


def write_tiny(path: Path, tensors: Mapping[str, Tensor] | None = None) -> Path:
    write_weights(path, tensors or tiny_weights(), PADDED, 89, "a test")
    return path
