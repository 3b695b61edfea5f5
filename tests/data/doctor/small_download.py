"""A small download: the names that MLCommons publishes, with made-up contents."""

import hashlib
from collections.abc import Callable
from typing import Any

from bertbench.data.mlcommons.published import part_name

Doctor = Callable[..., tuple[int, dict[str, Any]]]
"""Exit code of `data verify`, and its findings that are not `right`, by path."""
PARTS = 3
TEXT_LIST = "bert-preprocessed-wikipedia-dataset.md5"  # as the downloader names it
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 4096,
    "max_position_embeddings": 512,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
CONTENTS = {
    "text/eval.txt": b"Held out.\n",
    f"text/{part_name(0)}": b"The first part.\n",
    f"text/{part_name(1)}": b"The second part, longer.\n",
    f"text/{part_name(2)}": b"A third.\n",
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "bert_config.json": b"{}",
    "tf1_ckpt/model.ckpt-28252.index": b"index of TensorFlow 1",
    "tf1_ckpt/model.ckpt-28252.data-00000-of-00001": b"weights" * 9,
    "tf2_ckpt/model.ckpt-28252.index": b"index of 2",
    "tf2_ckpt/model.ckpt-28252.data-00000-of-00001": b"weights" * 4,
}
UNLISTED = {part_name(1), part_name(2)}  # as 494 of MLCommons' parts: no size, no MD5
TFRECORDS = {"eval_10k": 30, part_name(0): 40, part_name(1): None, part_name(2): None}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
