"""Round a batch up to one of few sizes, with tokens that no loss reads.

Compiled code and oneDNN products are built for each size that they meet. With this, there are 64 sizes between powers
of 2. `bins.py` chooses the sizes of recorded steps.

Filler tokens are sequences of their own, so real tokens never attend to them, and they have no labels.
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
"""Rounds a batch in main memory up to the sizes that its step is built for."""

_SIZES_AN_OCTAVE = 64  # so from 1,024 tokens on, at most 1/64 of a batch is filler, and 1/128 on average


class Bin(NamedTuple):
    """The sizes of one kind of batch."""

    tokens: int
    masked: int
    sequences: int


def static_size(count: int) -> int:
    """Return the smallest size that holds `count`: there are 64 between powers of 2, all multiples of 16."""
    octave = 1 << (count - 1).bit_length()
    step = max(SIZE_STEP, octave // 2 // _SIZES_AN_OCTAVE)
    return -(-count // step) * step


def fill_of(system: System) -> Fill:
    """Return how a run fills its batches: up to static sizes if its code is built for them, else not at all."""
    return filled if system.fills_batches else unfilled


def unfilled(batch: Batch) -> Batch:
    """Return the batch itself."""
    return batch


def filled(batch: Batch) -> Batch:
    """Fill a batch in main memory up to static sizes: of its tokens, and of the tokens that the heads read.

    The heads read the masked tokens and the first token of each sequence; as filler, they read the last token
    repeatedly.
    """
    longest = batch.sequences.longest
    size = filled_size(size_of(batch), longest)
    full_sequences, rest = divmod(size.tokens - len(batch.tokens_T), longest)
    lengths = [longest] * full_sequences
    if rest:
        lengths.append(rest)
    return extended(batch, np.array(lengths, np.int64), size.masked - len(batch.masked_at_M))


def filled_size(size: Bin, longest: int) -> Bin:
    """Return the size that `filled` gives a batch of this size, whose longest sequence has `longest` tokens."""
    tokens = static_size(size.tokens)
    sequences = size.sequences + -(-(tokens - size.tokens) // longest)
    return Bin(tokens, static_size(size.masked + sequences) - sequences, sequences)


def extended(batch: Batch, lengths_F: Integers, read_again: int) -> Batch:
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


def fill_to(batch: Batch, size: Bin) -> Batch:
    """Return a batch that has exactly these sizes, with filler that no loss reads.

    Each filler sequence has at least one token, so that the heads find its first token. The masked-token head reads the
    last token repeatedly.
    """
    count = size.sequences - len(batch.next_sentence_S)
    least, one_more = divmod(size.tokens - len(batch.tokens_T), count)
    lengths_F = np.repeat((least + 1, least), (one_more, count - one_more))
    return extended(batch, lengths_F, size.masked - len(batch.masked_at_M))


def size_of(batch: Batch) -> Bin:
    """Return the sizes of a batch."""
    return Bin(len(batch.tokens_T), len(batch.masked_at_M), len(batch.next_sentence_S))
