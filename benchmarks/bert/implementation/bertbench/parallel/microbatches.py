"""Make a pipeline's microbatches: parts with the same number of tokens, because stages exchange tensors of one size.

The samples of a step are assigned to parts by their tokens. Each part then gets filler up to the same budget of tokens:
sequences of one token, which cost almost nothing in attention, and which the heads don't read. loading/filler.py says
what other filler there is. The plan is a pure function of seed and step, so the smallest sufficient budget is known
before the first step.
Shapes: T tokens in the batch, S sequences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from bertbench.balance.assignment import assign_by_cost
from bertbench.common.errors import ConfigError
from bertbench.data.store.columns import Integers
from bertbench.loading.batch import Batch
from bertbench.loading.sampler import Sampler
from bertbench.model.sequences import EqualLengths, Sequences


@dataclass(frozen=True)
class TokenSampler(Sampler):
    """Splits a rank's share of a step into parts, a pipeline's microbatches, with nearly equal numbers of tokens."""

    def pieces(self, ids: Integers) -> list[Integers]:
        """Return the ids of each part. Raises ConfigError if there are fewer samples than microbatches."""
        if len(ids) < self.parts:
            raise ConfigError(
                f"a pipeline gets {len(ids)} samples in a step, fewer than its {self.parts} microbatches; lower "
                "parallel.microbatches, raise data.global_batch_size, or set data.equal_counts"
            )
        lengths_1S = self.dataset.lengths(ids)[None]
        tokens = np.arange(lengths_1S.max() + 1, dtype=np.float64)
        (part_S,) = assign_by_cost(lengths_1S, self.parts, tokens, equal_counts=False)
        return [ids[part_S == part] for part in range(self.parts)]

    def budget(self, steps: Iterable[int], rank: int) -> int:
        """Return the number of tokens in one rank's largest part in these steps.

        Raises ConfigError as `pieces` does.
        """
        largest = 0
        for step in steps:
            for part in self.share(self.planner.plan(step), rank):
                largest = max(largest, int(self.dataset.lengths(part.ids).sum()))
        return largest


def filled_to_multiple(batch: Batch, shares: int) -> Batch:
    """Add at most shares - 1 filler tokens, so that the batch's tokens divide into `shares` equal shares."""
    tokens_of_a_share = -(-len(batch.tokens_T) // shares)
    return filled_to_tokens(batch, tokens_of_a_share * shares)


def filled_to_tokens(batch: Batch, tokens: int) -> Batch:
    """Return the batch with filler up to `tokens` tokens, in sequences of one token."""
    present = len(batch.tokens_T)
    missing = tokens - present
    assert missing >= 0, "the budget holds the largest part of the run"
    if missing == 0:
        return batch
    cu_seqlens_S1 = batch.sequences.cu_seqlens_S1
    filler_ends = torch.arange(present + 1, tokens + 1, dtype=cu_seqlens_S1.dtype, device=batch.tokens_T.device)
    filler = EqualLengths(present, missing, 1)
    return replace(
        batch,
        tokens_T=functional.pad(batch.tokens_T, (0, missing)),
        segments_T=functional.pad(batch.segments_T, (0, missing)),
        positions_T=functional.pad(batch.positions_T, (0, missing)),
        sequences=Sequences(torch.cat((cu_seqlens_S1, filler_ends)), (*batch.sequences.groups, filler)),
    )
