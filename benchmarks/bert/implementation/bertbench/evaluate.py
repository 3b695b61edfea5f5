"""Masked-LM accuracy over the whole held-out set: every sample once, whatever the number of ranks."""

import numpy as np
import torch
from torch import nn

from bertbench.data.batch import Batch, gather
from bertbench.data.dataset import Dataset, MappedSamples
from bertbench.precision import computing
from bertbench.world import World


class HeldOut:
    """The evaluation samples of one rank, read when they are first used and kept on the device."""

    def __init__(
        self, dataset: Dataset, batch_size: int, world: World, rank: int | None = None, ranks: int | None = None
    ) -> None:
        """The share of one of `ranks`: of this one of all, where they aren't given."""
        self.dataset = dataset
        self._world = world
        ids = np.arange(world.rank if rank is None else rank, len(dataset), ranks or world.size)
        # Neighbours in length share a batch: fewer different lengths, less work; the sums don't depend on order.
        ids = ids[np.argsort(dataset.lengths(ids), kind="stable")]
        self._batches = [ids[start : start + batch_size] for start in range(0, len(ids), batch_size)]
        self._samples: MappedSamples | None = None

    def accuracy(self, model: nn.Module, precision: str) -> float:
        """Correct predictions over all masked tokens of the set; the same number on every rank."""
        if self._samples is None:
            self._samples = self.dataset.map_samples()
        counts = torch.zeros(3, dtype=torch.int64, device=self._world.device)  # correct, masked, samples
        model.eval()
        with torch.no_grad(), computing(precision, self._world.device):
            for number, ids in enumerate(self._batches):
                batch = gather(self._samples, ids, self.dataset.lengths(ids)).to(self._world.device)
                counts += self._counts(model, number, batch)
        model.train()
        correct_total, masked_total, samples = self._world.sum(counts).tolist()
        assert samples == len(self.dataset), "every held-out sample is evaluated once"
        return float(correct_total / masked_total)

    def _counts(self, model: nn.Module, number: int, batch: Batch) -> torch.Tensor:
        """Correct predictions, masked tokens and samples of batch `number`."""
        scores = model(batch.tokens_T, batch.segments_T, batch.positions_T, batch.sequences, batch.masked_at_M)
        return self._compare(scores.masked_lm_MV, batch)

    def _compare(self, masked_lm_MV: torch.Tensor, batch: Batch) -> torch.Tensor:
        correct = (masked_lm_MV.argmax(dim=-1) == batch.masked_labels_M).sum()
        return torch.stack(
            (correct, correct.new_tensor(len(batch.masked_labels_M)), correct.new_tensor(len(batch.next_sentence_S)))
        )
