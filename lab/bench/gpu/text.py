"""Make text that a model learns within 200 steps: each token follows from its neighbour."""

from dataclasses import replace

import numpy as np
import torch

from bertbench.balance.random_samples import draw_lengths, samples_of_lengths
from bertbench.data.store.columns import Columns, places_of_spans
from bertbench.loading.batch import batch_of
from bertbench.loading.filler import Fill
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.shape import BertShape

_MASK, _FIRST = 3, 5
_WORDS = 61  # prime, with 2 as a generator: doubling visits every word but 0
_SHORTEST = 5


def learnable(shape: BertShape, samples: int, seed: int) -> Columns:
    """Return samples of Wikipedia's lengths, longest first. Token i + 1 is twice token i modulo 61; 15 % are masked."""
    lengths = np.sort(np.clip(draw_lengths(samples, seed), _SHORTEST, shape.max_positions))[::-1]
    content = samples_of_lengths(lengths, seed)
    powers = np.array([pow(2, place, _WORDS) for place in range(shape.max_positions)])
    starts = np.repeat(np.random.default_rng(seed).integers(1, _WORDS, samples), lengths)
    tokens = _FIRST + starts * powers[places_of_spans(np.zeros(samples, np.int64), lengths)] % _WORDS
    at = content.masked_lm_positions + np.repeat(np.cumsum(lengths) - lengths, content.masked)
    labels = tokens[at]
    tokens[at] = _MASK
    return replace(
        content, input_ids=tokens.astype(np.int16), segment_ids=np.zeros_like(content.segment_ids),
        masked_lm_ids=labels.astype(np.int16), next_sentence_labels=np.zeros(samples, np.int8),
    )  # fmt: skip


def part_of(content: Columns, ranks: int, parts: int, fill: Fill, device: torch.device) -> LoadedPart:
    """Return samples, with filler, on the device, as one of `parts` parts in a step of `ranks` ranks."""
    batch, count = batch_of(content), len(content.lengths)
    part = Part(np.arange(count), 1 / (ranks * parts * int(content.masked.sum())), 1 / (ranks * parts * count))
    return LoadedPart(part, fill(batch).to(device))
