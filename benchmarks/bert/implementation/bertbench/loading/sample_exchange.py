"""Exchange drawn samples between ranks: one all-gather of 16-bit words per step.

The index gives each rank's number of words, so ranks don't exchange sizes. All ranks send the largest number of words.
The exchange runs in the loader's thread, ahead of the step, in a process group of its own.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from bertbench.balance.plan import StepPlan, words_sent
from bertbench.data.store.columns import Columns, Integers
from bertbench.data.store.dataset import Dataset
from bertbench.distributed.collectives import all_gather


class SampleExchange:
    """All-gathers drawn samples in a group of consecutive ranks; every rank of it must take the same steps."""

    def __init__(self, dataset: Dataset, group: distributed.ProcessGroup) -> None:
        self._dataset = dataset
        self._group = group
        self._ranks = distributed.get_process_group_ranks(group)

    def gathered(self, plan: StepPlan, mine: Columns) -> tuple[Integers, Columns]:
        """Return all samples that the group has drawn, with their ids; `mine` are those of this rank."""
        words_R = words_sent(self._dataset.entries_N, plan.drawn)[self._ranks]
        most = int(words_R.max())
        packed = _packed(mine)
        sent = np.zeros(most, np.int16)
        sent[: len(packed)] = packed
        received = torch.empty(most * len(self._ranks), dtype=torch.int16)
        # as bytes: neither gloo nor NCCL knows 16-bit integers
        all_gather(received.view(torch.uint8), torch.from_numpy(sent).view(torch.uint8), group=self._group)
        ids_of_ranks = [plan.drawn.of(rank) for rank in self._ranks]
        blocks = []
        for ids, words in zip(ids_of_ranks, received.numpy().reshape(len(self._ranks), most), strict=True):
            blocks.append(_unpacked(words, self._dataset.lengths(ids), self._dataset.masked(ids)))
        return np.concatenate(ids_of_ranks), Columns.joined(blocks)


def _packed(content: Columns) -> NDArray[np.int16]:
    """Concatenate the fields, with two values of an 8-bit field in a word."""
    small = np.concatenate((content.segment_ids, content.next_sentence_labels))
    small = np.append(small, np.zeros(len(small) % 2, np.int8))
    return np.concatenate(
        (
            content.input_ids,
            content.masked_lm_positions,
            content.masked_lm_ids,
            small.view(np.int16),
        )
    )


def _unpacked(words: NDArray[np.int16], lengths: Integers, masked: Integers) -> Columns:
    tokens = int(lengths.sum())
    predictions = int(masked.sum())
    input_ids, positions, labels, small = np.split(words, np.cumsum((tokens, predictions, predictions)))
    segment_ids, pairs, _ = np.split(small.view(np.int8), (tokens, tokens + len(lengths)))
    return Columns(lengths, masked, input_ids, segment_ids, positions, labels, pairs)
