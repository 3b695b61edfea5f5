import math

import numpy as np
import torch

from bertbench.finetune.batches import span_batch
from bertbench.finetune.features import Feature
from bertbench.finetune.span_loss import span_losses
from bertbench.model.sequences import Sequences
from bertbench.model.span import log_softmax


def feature(length: int, start: int, end: int) -> Feature:
    return Feature(0, np.arange(length, dtype=np.int32), 2, np.zeros((0, 2)), np.zeros(0, bool), start, end)


def test_probabilities_are_shared_among_a_sequence_s_own_tokens() -> None:
    lengths = [11, 7, 7, 2]
    values = torch.randn(27, 2, generator=torch.Generator().manual_seed(1))
    values[3] = 1000.0  # exponentials of it would overflow
    together = log_softmax(values, Sequences.of(np.array(lengths)))
    alone = [torch.log_softmax(part, dim=0) for part in values.split(lengths)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_a_loss_is_the_mean_over_both_ends_of_the_answer() -> None:
    batch = span_batch([feature(5, 3, 4), feature(3, 0, 0)])
    assert batch.starts_S.tolist() == [3, 5]
    assert batch.ends_S.tolist() == [4, 5]
    assert batch.segments_T.tolist() == [0, 0, 1, 1, 1, 0, 0, 1]
    scores = torch.zeros(8, 2)
    scores[4, 1] = math.log(4)  # four times as likely as the other four together
    expected = [(math.log(5) + math.log(2)) / 2, math.log(3)]
    torch.testing.assert_close(span_losses(scores, batch), torch.tensor(expected))
