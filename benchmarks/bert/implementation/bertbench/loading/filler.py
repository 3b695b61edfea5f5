"""Round a batch up to one of few sizes, with tokens that no loss reads.

Compiled code, CUDA graphs and oneDNN products are built for fixed sizes, but batches differ in tokens.
Filler tokens are sequences of their own, so real ones never attend to them, and they have no labels.
Shapes: as in batch.py; F filler sequences.
"""

import numpy as np
import torch

from bertbench.loading.batch import Batch
from bertbench.model.options import SIZE_STEP
from bertbench.model.scores import IGNORED
from bertbench.model.sequences import Sequences

_SIZES_AN_OCTAVE = 64  # so 1/64 of a batch is filler at most, 1/128 on average, from 1,024 tokens on


def static_size(count: int) -> int:
    """Return the smallest size that holds `count`: there are 64 between powers of 2, all multiples of 16."""
    octave = 1 << (count - 1).bit_length()
    step = max(SIZE_STEP, octave // 2 // _SIZES_AN_OCTAVE)
    return -(-count // step) * step


def filled(batch: Batch) -> Batch:
    """Fill a batch in main memory up to static sizes: of its tokens, and of the tokens that the heads read.

    The heads read masked tokens and each sequence's first; as filler they read the last token repeatedly.
    """
    tokens, sequences = len(batch.tokens_T), batch.sequences
    filler = static_size(tokens) - tokens
    whole, rest = divmod(filler, sequences.longest)
    lengths_F = [sequences.longest] * whole + [rest] * (rest > 0)
    read = len(batch.masked_at_M) + len(batch.next_sentence_S) + len(lengths_F)
    read_again = static_size(read) - read
    return Batch(
        tokens_T=longer(batch.tokens_T, filler, 0),
        segments_T=longer(batch.segments_T, filler, 0),
        positions_T=torch.cat((batch.positions_T, *(torch.arange(length, dtype=torch.int32) for length in lengths_F))),
        sequences=Sequences.of(np.concatenate((np.diff(sequences.cu_seqlens_S1.numpy()), lengths_F)).astype(np.int64)),
        masked_at_M=longer(batch.masked_at_M, read_again, tokens + filler - 1),
        masked_labels_M=longer(batch.masked_labels_M, read_again, IGNORED),
        next_sentence_S=longer(batch.next_sentence_S, len(lengths_F), IGNORED),
    )


def longer(tensor: torch.Tensor, more: int, value: int) -> torch.Tensor:
    """Return a tensor with `more` elements behind its own, all of them `value`."""
    return torch.cat((tensor, tensor.new_full((more,), value)))
