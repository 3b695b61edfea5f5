"""Load efficiency: mean load over the largest load of a step, for each way to make batches."""

from functools import cache

import numpy as np

from bertbench.data.lengths import draw_lengths, length_shares
from bertbench.forecast.published import Batching

_STEPS = 40  # of simulation; the mean moves by less than 0.005 from 40 to 400
_SIMULATED_SAMPLES = 40_000
# Measured elsewhere and not simulated here. Packing: simulated with rows of 512 and up to 3 sequences; the paper's
# strata with 16 samples a GPU on 1,024.
_FIXED = {"packed": 0.965, "stratified": 0.960}


def flops(lengths: np.ndarray) -> np.ndarray:
    """Training FLOPs of BERT-Large on unpadded sequences of these lengths.

    Linear layers and heads on masked tokens 1,841 MFLOP a token; attention 0.295 MFLOP a pair of tokens.
    """
    return np.asarray(1.841e9 * lengths + 0.295e6 * lengths.astype(np.float64) ** 2)


@cache
def mean_flops() -> float:
    """Training FLOPs of an average Wikipedia sample."""
    shares = length_shares()
    return float(shares @ flops(np.arange(1, len(shares) + 1)))


@cache
def load_efficiency(batching: Batching, gpus: int, samples_per_gpu: int) -> float:
    """Simulated on Wikipedia's lengths. `sorted`: the global batch, sorted, dealt in a snake; `planned` likewise."""
    if batching == "padded":
        return mean_flops() / float(flops(np.array([512]))[0])
    if batching in _FIXED:
        return _FIXED[batching]
    steps = max(5, min(_STEPS, _SIMULATED_SAMPLES // (gpus * samples_per_gpu)))
    loads = flops(draw_lengths(steps * gpus * samples_per_gpu, seed=1)).reshape(steps, samples_per_gpu, gpus)
    if batching != "random":
        loads = np.sort(loads.reshape(steps, -1), axis=1).reshape(steps, samples_per_gpu, gpus)
        loads[:, 1::2] = loads[:, 1::2, ::-1]  # the snake: every other row from right to left
    per_gpu = loads.sum(axis=1)
    return float((per_gpu.mean(axis=1) / per_gpu.max(axis=1)).mean())
