"""Compute masked-LM accuracy over the whole evaluation set; every sample counts once, with any number of ranks."""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from bertbench.data.store.columns import Integers
from bertbench.data.store.dataset import Dataset
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, SampleCheck, gather
from bertbench.loading.filler import Fill, unfilled
from bertbench.loading.loader import use_device
from bertbench.model.arithmetic import computing
from bertbench.model.loss import IGNORED
from bertbench.model.options import PrecisionName

if TYPE_CHECKING:
    from bertbench.training.layout_trainer import LayoutTrainer


class Evaluator:
    """The evaluation samples of one rank. They are read after the clock has started, and kept on the device."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        world: World,
        fill: Fill = unfilled,
        share: tuple[int, int] | None = None,
    ) -> None:
        """Take the share of one rank: its first sample, and the stride to the next; by default, this rank's."""
        self.dataset = dataset
        self._world = world
        self._fill = fill
        first, step = share or (world.rank, world.size)
        ids = np.arange(first, len(dataset), step)
        # Samples of similar length share a batch, because fewer different lengths mean less work. The order of samples
        # doesn't change the sums.
        ids = ids[np.argsort(dataset.lengths(ids), kind="stable")]
        self._batch_ids = [ids[start : start + batch_size] for start in range(0, len(ids), batch_size)]
        self._samples = dataset.map_samples()
        self._batches: list[Batch] = []
        self._reading: list[Future[Batch]] = []
        self._check = SampleCheck.of(dataset)

    def read_ahead(self) -> None:
        """On a GPU, begin to read the samples in a thread; call it after every step.

        On a CPU, a thread would take cores from the steps.
        """
        if self._world.device.type == "cpu" or self._reading or self._batches:
            return
        thread = ThreadPoolExecutor(1, "evaluation", use_device, (self._world.device,))
        self._reading = [thread.submit(self._read, ids) for ids in self._batch_ids]
        thread.shutdown(wait=False)  # the thread ends after the last batch

    def accuracy(self, model: nn.Module, precision: PrecisionName) -> float:
        """Return correct predictions divided by all masked tokens of the set; every rank gets the same number."""
        self._world.watchdog.at("evaluating")
        if not self._batches:
            self._finish_reading()
        totals_3 = torch.zeros(3, dtype=torch.float64, device=self._world.device)  # exact for counts to 2^53
        model.eval()
        with torch.no_grad(), computing(precision, self._world.device):
            for number, batch in enumerate(self._batches):
                self._world.watchdog.goes_on()
                predicted_M = self._predictions(model, number, batch)
                if predicted_M is not None:
                    totals_3 += _count_correct(predicted_M, batch)
        model.train()
        correct, masked, samples = self._world.sum(totals_3).tolist()
        assert samples == len(self.dataset), "every evaluation sample is evaluated once"
        return correct / masked

    def _predictions(self, model: nn.Module, number: int, batch: Batch) -> Tensor | None:
        """Return the predicted ids of the masked tokens in batch `number`, [M]; None if another rank counts it."""
        del number
        masked_lm_MV: Tensor = model(batch.inputs).masked_lm_MV
        return masked_lm_MV.argmax(dim=-1)

    def _finish_reading(self) -> None:
        """Wait until the thread has read the samples, or read them here. Raises DataError as `gather` does."""
        for number, ids in enumerate(self._batch_ids):
            self._world.watchdog.goes_on()
            self._batches.append(self._reading[number].result() if self._reading else self._read(ids))
        self._reading = []

    def _read(self, ids: Integers) -> Batch:
        batch = gather(self._samples, ids, self.dataset.lengths(ids), self._check)
        return self._fill(batch).to(self._world.device)


class LayoutEvaluator(Evaluator):
    """The evaluation samples of one data-parallel rank; all ranks that share its model read them, and one counts."""

    def __init__(self, dataset: Dataset, batch_size: int, trainer: "LayoutTrainer") -> None:
        place = trainer.groups.place
        layout = trainer.groups.layout
        super().__init__(dataset, batch_size, trainer.groups.world, share=(place.data, layout.data))
        self._layout_outputs = trainer.outputs
        self._counts = place.tensor == 0
        self._counted_batches = len(self._batch_ids)
        # ranks that gather each other's weights must run the same number of batches; extra batches don't count
        most_samples = math.ceil(len(dataset) / layout.data)
        most_batches = math.ceil(most_samples / batch_size)
        while len(self._batch_ids) < most_batches:
            self._batch_ids.append(np.zeros(1, np.int64))

    def _predictions(self, model: nn.Module, number: int, batch: Batch) -> Tensor | None:
        predicted_M = self._layout_outputs(batch)
        return predicted_M if self._counts and number < self._counted_batches else None


def _count_correct(predicted_M: Tensor, batch: Batch) -> Tensor:
    """Count correct predictions, masked tokens and samples: [3]."""
    correct_M = predicted_M == batch.masked_labels_M
    masked_M = batch.masked_labels_M != IGNORED  # excludes filler, whose labels equal no prediction
    samples_S = batch.next_sentence_S != IGNORED
    return torch.stack((correct_M.sum(), masked_M.sum(), samples_S.sum()))
