"""The tiny system of the tests: its sizes are small and mostly coprime, so that swapped dimensions show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from bertbench.data.store.columns import Columns

TINY_SYSTEM: dict[str, Any] = {
    "hardware": {
        "division": "open",
        "status": "Research, Development, or Internal (RDI)",
        "system_name": "tiny",
        "number_of_nodes": 1,
    },
    "launch": {"ranks_per_node": 2, "device": "cpu", "timeout_s": 20},
    "model": {
        "vocab_size": 97,
        "hidden_size": 14,
        "layers": 2,
        "attention_heads": 2,
        "feed_forward_size": 23,
        "max_positions": 29,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "data": {
        "path": "unset",
        "global_batch_size": 12,
        "recipe": {
            "vocab_size": 89,
            "dupe_factor": 2,
            "held_out_fraction": 0.2,
            "held_out_samples": 13,
        },
    },
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
    "schedule": {"max_steps": 6},
    "evaluation": {"target": 0.9, "interval_samples": 25, "batch_size": 5},
}


def tiny_system(folder: Path, **changed: dict[str, Any]) -> dict[str, Any]:
    """The tiny system with its data in a folder, and with these changes of its sections."""
    changed["data"] = {"path": str(folder)}
    return {**TINY_SYSTEM, **{name: {**TINY_SYSTEM[name], **section} for name, section in changed.items()}}


WORDS = (
    "the", "a", "model", "learns", "words", "from", "context", "and", "every", "sentence", "follows", "another", "one",
    "in", "plain", "text",
)  # fmt: skip


def tiny_text(random: Random, articles: int) -> str:
    """Articles of a few sentences, one per line, with a blank line between articles."""
    return "\n\n".join(
        "\n".join(
            " ".join(random.choice(WORDS) for _ in range(random.randint(3, 11))).capitalize() + "."
            for _ in range(random.randint(2, 9))
        )
        for _ in range(articles)
    )


class Sample(NamedTuple):
    """One sample as lists, for expectations written by hand; the fields are those of Columns."""

    input_ids: list[int]
    segment_ids: list[int]
    masked_lm_positions: list[int]
    masked_lm_ids: list[int]
    next_sentence_label: int


def columns_of(samples: Sequence[Sample]) -> Columns:
    """Samples as Columns."""

    def flat(name: str, dtype: type[np.integer]) -> np.ndarray:
        return np.array([value for sample in samples for value in getattr(sample, name)], dtype)

    return Columns(
        lengths=np.array([len(sample.input_ids) for sample in samples]),
        masked=np.array([len(sample.masked_lm_ids) for sample in samples]),
        input_ids=flat("input_ids", np.int16),
        segment_ids=flat("segment_ids", np.int8),
        masked_lm_positions=flat("masked_lm_positions", np.int16),
        masked_lm_ids=flat("masked_lm_ids", np.int16),
        next_sentence_labels=np.array([sample.next_sentence_label for sample in samples], np.int8),
    )


def samples_of(columns: Columns) -> list[Sample]:
    """Columns as samples."""
    tokens, masked = np.cumsum(columns.lengths)[:-1], np.cumsum(columns.masked)[:-1]
    fields = (
        np.split(columns.input_ids, tokens),
        np.split(columns.segment_ids, tokens),
        np.split(columns.masked_lm_positions, masked),
        np.split(columns.masked_lm_ids, masked),
    )
    labels = columns.next_sentence_labels.tolist()
    return [Sample(*(part.tolist() for part in parts), label) for *parts, label in zip(*fields, labels, strict=True)]
