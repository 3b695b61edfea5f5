"""A small download: the names that MLCommons publishes, with made-up contents."""

import hashlib
from collections.abc import Callable
from typing import Any

from bertbench.data.mlcommons.published import part_name

Doctor = Callable[..., dict[str, Any]]
"""What `data verify` reports, with the findings that are not `right` by path."""
TEXT_LIST = "bert-preprocessed-wikipedia-dataset.md5"  # as the downloader names it
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


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()
