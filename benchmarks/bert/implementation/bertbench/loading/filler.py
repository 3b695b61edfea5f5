"""Add filler to a batch, where its size must be one of few.

A batch has no padding (batch.py), so each has a size of its own. Four places need a given size; each adds filler at the
batch's end:
- Compiled code and oneDNN's products are built anew for each size that they meet. `filled_to_round_size` leaves 64
  sizes between powers of 2.
- A CUDA graph replays one size. `filled_to_size` fills a batch up to one of the sizes that were recorded, the bins
  (bins.py).
- A pipeline's stages exchange tensors of one size. `filled_to_tokens` (parallel/microbatches.py) fills each microbatch
  up to as many tokens as the run's largest has.
- Tensor-parallel ranks that split the tokens need equal shares. `filled_to_multiple` (also there) adds the few tokens
  that are missing.

Filler consists of sequences of its own, so real tokens never attend to it, and no loss reads it.
Words: a part is what a rank computes in one forward pass; a size counts a batch's tokens, masked tokens and sequences;
a budget is the number of tokens up to which batches are filled.
Shapes: as in batch.py; F filler sequences, N samples of a dataset.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.loading.batch import Batch
from bertbench.model.loss import IGNORED
from bertbench.model.options import SIZE_STEP
from bertbench.model.sequences import Sequences

Fill = Callable[[Batch], Batch]
"""Fills a batch in main memory up to a size that its step is built for."""

_SIZES_AN_OCTAVE = 64  # so from 1,024 tokens on, at most 1/64 of a batch is filler, and 1/128 on average


class BatchSize(NamedTuple):
    """How many tokens, masked tokens and sequences a batch has."""

    tokens: int
    masked: int
    sequences: int


def round_number(count: int) -> int:
    """Return the next round number, at least `count`: there are 64 between powers of 2, all multiples of 16."""
    octave = 1 << (count - 1).bit_length()
    step = max(SIZE_STEP, octave // 2 // _SIZES_AN_OCTAVE)
    return -(-count // step) * step


def fill_of(system: System) -> Fill:
    """Return how a run without graphs fills its batches: up to round sizes if its code is built for them, or not."""
    return filled_to_round_size if system.fills_batches else unfilled


def unfilled(batch: Batch) -> Batch:
    """Return the batch itself."""
    return batch


def filled_to_round_size(batch: Batch) -> Batch:
    """Fill a batch in main memory up to round numbers of its tokens, and of the tokens that the heads read.

    The heads read the masked tokens and the first token of each sequence; as filler, they read the last token
    repeatedly.
    """
    longest = batch.sequences.longest
    size = round_size(size_of(batch), longest)
    full_sequences, rest = divmod(size.tokens - len(batch.tokens_T), longest)
    lengths = [longest] * full_sequences
    if rest:
        lengths.append(rest)
    return with_filler(batch, np.array(lengths, np.int64), size.masked - len(batch.masked_at_M))


def round_size(size: BatchSize, longest: int) -> BatchSize:
    """Return the size up to which `filled_to_round_size` fills a batch of this size.

    `longest` is the number of tokens of the batch's longest sequence.
    """
    tokens = round_number(size.tokens)
    sequences = size.sequences + -(-(tokens - size.tokens) // longest)
    return BatchSize(tokens, round_number(size.masked + sequences) - sequences, sequences)


def with_filler(batch: Batch, lengths_F: Integers, read_again: int) -> Batch:
    """Return a batch with filler sequences of these lengths, whose heads read the last token `read_again` times."""
    starts_F = np.cumsum(lengths_F) - lengths_F
    filler = int(lengths_F.sum())
    positions_F = np.arange(filler, dtype=np.int32) - np.repeat(starts_F, lengths_F).astype(np.int32)
    lengths_S = np.diff(batch.sequences.cu_seqlens_S1.numpy())
    return Batch(
        tokens_T=_longer(batch.tokens_T, filler, 0),
        segments_T=_longer(batch.segments_T, filler, 0),
        positions_T=torch.cat((batch.positions_T, torch.from_numpy(positions_F))),
        sequences=Sequences.of(np.concatenate((lengths_S, lengths_F))),
        masked_at_M=_longer(batch.masked_at_M, read_again, len(batch.tokens_T) + filler - 1),
        masked_labels_M=_longer(batch.masked_labels_M, read_again, IGNORED),
        next_sentence_S=_longer(batch.next_sentence_S, len(lengths_F), IGNORED),
    )


def _longer(tensor: Tensor, more: int, value: int) -> Tensor:
    return torch.cat((tensor, tensor.new_full((more,), value)))


def filled_to_size(batch: Batch, size: BatchSize) -> Batch:
    """Return a batch of exactly this size.

    Each filler sequence has at least one token, so that the heads find its first token. The masked-token head reads the
    last token repeatedly.
    """
    count = size.sequences - len(batch.next_sentence_S)
    least, one_more = divmod(size.tokens - len(batch.tokens_T), count)
    lengths_F = np.repeat((least + 1, least), (one_more, count - one_more))
    return with_filler(batch, lengths_F, size.masked - len(batch.masked_at_M))


def size_of(batch: Batch) -> BatchSize:
    """Return the size of a batch."""
    return BatchSize(len(batch.tokens_T), len(batch.masked_at_M), len(batch.next_sentence_S))
