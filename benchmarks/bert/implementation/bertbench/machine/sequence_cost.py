"""`bertbench estimate --calibrate`: fit the cost of a sequence to this machine's step times.

Each batch holds sequences of one length; each length is tried at two batch sizes. The forward and backward passes of
all batches are timed in interleaved rounds. Least squares on the median times gives a constant, a linear and a
quadratic term.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch

from bertbench.common.phase_clock import wait_for_device
from bertbench.common.progress import Progress
from bertbench.data.store.columns import Floats
from bertbench.loading.batch import Batch, synthetic
from bertbench.model.bert import Bert
from bertbench.model.loss import weighted_loss
from bertbench.model.shape import BertShape

_SIXTEENTHS = (1, 2, 4, 8, 12, 16)  # lengths, in sixteenths of the longest sequence
_SEQUENCES_OF_LONGEST = (2, 4)  # tokens of a batch, as a multiple of the longest sequence
_ROUNDS = 3


@dataclass(frozen=True)
class Fit:
    """Milliseconds of a step on sequences of n tokens: constant + sum over sequences (linear * n + quadratic * n^2)."""

    linear: float
    quadratic: float
    constant: float
    r_squared: float


def measure(shape: BertShape, device: torch.device, seed: int, progress: Progress) -> Fit:
    """Measure and fit the forward and backward pass of a model of this shape."""
    generator = torch.Generator().manual_seed(seed)
    model = Bert(shape)
    model.initialize(generator)
    model.to(device)
    batches = []
    for part in _SIXTEENTHS:
        length = max(1, shape.max_positions * part // 16)
        for sequences in _SEQUENCES_OF_LONGEST:
            batch = synthetic(shape.max_positions * sequences // length, length, shape.vocab_size, generator)
            batches.append((length, batch.to(device)))
    rounds = []
    for number in range(_ROUNDS + 1):
        rounds.append([_step_ms(model, batch, device) for _, batch in batches])
        progress.update(number + 1, _ROUNDS + 1, f"round {number + 1} of {_ROUNDS + 1}")
    lengths = np.array([length for length, _ in batches], dtype=float)
    tokens = np.array([len(batch.tokens_T) for _, batch in batches], dtype=float)
    # the first round warms up
    return fit(lengths, tokens, np.median(rounds[1:], axis=0))


def fit(lengths: Floats, tokens: Floats, times_ms: Floats) -> Fit:
    """Fit `times_ms` by least squares: each batch has `tokens` tokens, in sequences of its `lengths`; all [batches].

    Errors are weighted by 1 / time, so that the relative errors of short and long batches count alike.
    """
    columns = np.stack((tokens, tokens * lengths, np.ones_like(tokens)), axis=1)
    (linear, quadratic, constant), *_ = np.linalg.lstsq(columns / times_ms[:, None], np.ones_like(times_ms))
    residual = times_ms - columns @ (linear, quadratic, constant)
    return Fit(
        linear=float(linear),
        quadratic=float(quadratic),
        constant=float(constant),
        r_squared=float(1 - (residual**2).sum() / ((times_ms - times_ms.mean()) ** 2).sum()),
    )


def _step_ms(model: Bert, batch: Batch, device: torch.device) -> float:
    wait_for_device(device)
    began = time.perf_counter()
    weighted_loss(model(*batch.inputs), *batch.labels, 1, 1).backward()
    wait_for_device(device)
    return 1e3 * (time.perf_counter() - began)
