"""Round a batch up to one of few sizes, with tokens that no loss reads.

Compiled code, CUDA graphs and oneDNN products are built for fixed sizes, but batches differ in tokens.
Filler tokens are sequences of their own, so real ones never attend to them, and they have no labels.
Shapes: as in batch.py; F filler sequences.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from bertbench.config import System
from bertbench.loading.batch import Batch
from bertbench.model.loss import IGNORED
from bertbench.model.options import SIZE_STEP
from bertbench.model.sequences import Sequences

Fill = Callable[[Batch], Batch]
"""Rounds a batch in main memory up to the sizes that its step is built for."""

_SIZES_AN_OCTAVE = 64  # so 1/64 of a batch is filler at most, 1/128 on average, from 1,024 tokens on


def static_size(count: int) -> int:
    """Return the smallest size that holds `count`: there are 64 between powers of 2, all multiples of 16."""
    octave = 1 << (count - 1).bit_length()
    step = max(SIZE_STEP, octave // 2 // _SIZES_AN_OCTAVE)
    return -(-count // step) * step


def fill_of(system: System) -> Fill:
    """Return how a run's batches are filled: to static sizes where its code is built for them, else not at all."""
    return filled if system.fills_batches else unfilled


def unfilled(batch: Batch) -> Batch:
    """Return the batch itself."""
    return batch


def filled(batch: Batch) -> Batch:
    """Fill a batch in main memory up to static sizes: of its tokens, and of the tokens that the heads read.

    The heads read masked tokens and each sequence's first; as filler they read the last token repeatedly.
    """
    longest, tokens = batch.sequences.longest, len(batch.tokens_T)
    whole, rest = divmod(static_size(tokens) - tokens, longest)
    lengths_F = np.array([longest] * whole + [rest] * (rest > 0), np.int64)
    read = len(batch.masked_at_M) + len(batch.next_sentence_S) + len(lengths_F)
    return extended(batch, lengths_F, static_size(read) - read)


def extended(batch: Batch, lengths_F: NDArray[np.int64], read_again: int) -> Batch:
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


def _longer(tensor: torch.Tensor, more: int, value: int) -> torch.Tensor:
    return torch.cat((tensor, tensor.new_full((more,), value)))
