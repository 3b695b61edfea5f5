"""Compute masked-LM accuracy of a model that is split over ranks: the rank with the scores counts each sample once."""

import math

import numpy as np
import torch
from torch import nn

from bertbench.data.store.dataset import Dataset
from bertbench.loading.batch import Batch
from bertbench.training.evaluate import Evaluator
from bertbench.training.layout_trainer import LayoutTrainer
from bertbench.training.trainer import Trainer


class LayoutEvaluator(Evaluator):
    """The evaluation samples of one data-parallel rank; all ranks that share its model read them."""

    def __init__(self, dataset: Dataset, batch_size: int, trainer: Trainer) -> None:
        assert isinstance(trainer, LayoutTrainer), "its layout says which samples are this rank's"
        place, layout = trainer.groups.place, trainer.groups.layout
        super().__init__(dataset, batch_size, trainer.groups.world, rank=place.data, ranks=layout.data)
        self._layout_scores = trainer.scores
        self._counts = place.tensor == 0
        # ranks that gather each other's weights must run equally many batches: the extra ones don't count
        self._counted = len(self._ids)
        most = math.ceil(math.ceil(len(dataset) / layout.data) / batch_size)
        self._ids += [np.zeros(1, np.int64)] * (most - self._counted)

    def _scores(self, model: nn.Module, number: int, batch: Batch) -> torch.Tensor | None:
        scores = self._layout_scores(batch)
        return scores if self._counts and number < self._counted else None
