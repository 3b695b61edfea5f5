"""Compute the load efficiency of each batching method: the mean load of GPUs in a step, divided by the largest."""

from functools import cache

import numpy as np

from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.plan import Balance, Planner, efficiency
from bertbench.balance.random_samples import length_shares
from bertbench.balance.simulate import VARIANTS, drawn_index
from bertbench.data.store.columns import Index
from bertbench.model.shape import BertShape, FlopTerms
from bertbench.plan.calibrating_results import GPUS_OF_NODE

# From 40 steps to 400, the mean changes by less than 0.005; with large batches, for which there are few steps, by less
# than 0.002.
_MOST_STEPS = 40
_FEWEST_STEPS = 4
_STEPS_SAMPLES = 1 << 16  # samples of all steps together, within the limits on steps
_INDEX_SAMPLES = 1 << 20


def flops(lengths: np.ndarray) -> np.ndarray:
    """Return BERT-Large's training FLOPs on unpadded sequences of these lengths, at the mean share of masked tokens."""
    terms = FlopTerms.of(BertShape())
    per_token = terms.token + MASKED_SHARE * terms.masked
    return np.asarray(per_token * lengths + terms.pair * lengths.astype(np.float64) ** 2)


@cache
def flops_per_sample() -> float:
    """Return the training FLOPs of an average Wikipedia sample."""
    shares = length_shares()
    return float(shares @ flops(np.arange(1, len(shares) + 1)))


@cache
def load_efficiency(batching: str | Balance, gpus: int, samples_per_gpu: int) -> float:
    """Simulate a system's `data.balance`, or a variant of `bertbench balance`, on Wikipedia's lengths.

    With `padded`, each sample has 512 tokens.
    """
    if batching == "padded":
        return flops_per_sample() / float(flops(np.array([512]))[0])
    nodes = gpus // GPUS_OF_NODE if gpus % GPUS_OF_NODE == 0 else 1
    batch = gpus * samples_per_gpu
    balance = VARIANTS[batching] if isinstance(batching, str) else batching
    planner = Planner(_index(), balance, batch, 1, nodes, gpus // nodes)
    steps = max(_FEWEST_STEPS, min(_MOST_STEPS, _STEPS_SAMPLES // batch))
    return float(np.mean([efficiency(planner.loads(planner.plan(step))) for step in range(steps)]))


@cache
def _index() -> Index:
    return drawn_index(_INDEX_SAMPLES, seed=1)
