"""Masked-LM accuracy over the whole held-out set: every sample once, whatever the number of ranks."""

import numpy as np
import torch

from bertbench.data.batch import Batch, gather
from bertbench.data.dataset import Dataset
from bertbench.data.filler import filled
from bertbench.data.soundness import Soundness
from bertbench.model.bert import Bert
from bertbench.model.loss import IGNORED
from bertbench.model.options import PrecisionName
from bertbench.precision import computing
from bertbench.world import World


class HeldOut:
    """The evaluation samples of one rank, read when they are first used and kept on the device.

    `fill` rounds batches up to static sizes.
    """

    def __init__(self, dataset: Dataset, batch_size: int, world: World, fill: bool = False) -> None:
        self.dataset = dataset
        self._world = world
        self._batch_size = batch_size
        self._fill = fill
        self._batches: list[Batch] | None = None
        self._soundness = Soundness.of(dataset)

    def accuracy(self, model: Bert, precision: PrecisionName) -> float:
        """Correct predictions over all masked tokens of the set; the same number on every rank."""
        self._world.watchdog.at("evaluating")
        if self._batches is None:
            self._batches = self._read()
        counts = torch.zeros(3, dtype=torch.int64, device=self._world.device)  # correct, masked, samples
        model.eval()
        with torch.no_grad(), computing(precision, self._world.device):
            for batch in self._batches:
                self._world.watchdog.goes_on()
                scores = model(batch.tokens_T, batch.segments_T, batch.positions_T, batch.sequences, batch.masked_at_M)
                correct = scores.masked_lm_MV.argmax(dim=-1) == batch.masked_labels_M
                wanted = batch.masked_labels_M != IGNORED
                counts += torch.stack((correct.sum(), wanted.sum(), (batch.next_sentence_S != IGNORED).sum()))
        model.train()
        correct_total, masked_total, samples = self._world.sum(counts).tolist()
        assert samples == len(self.dataset), "every held-out sample is evaluated once"
        return float(correct_total / masked_total)

    def _read(self) -> list[Batch]:
        samples = self.dataset.map_samples()
        ids = np.arange(self._world.rank, len(self.dataset), self._world.size)
        # Neighbours in length share a batch: fewer different lengths, less work; the sums don't depend on order.
        ids = ids[np.argsort(self.dataset.lengths(ids), kind="stable")]
        parts = [ids[start : start + self._batch_size] for start in range(0, len(ids), self._batch_size)]
        batches = []
        for part in parts:
            self._world.watchdog.goes_on()
            batch = gather(samples, part, self.dataset.lengths(part), self._soundness)
            batches.append((filled(batch) if self._fill else batch).to(self._world.device))
        return batches
