"""Optimizers on shards: every rank updates what it holds, and LAMB's norms are those of whole tensors."""

from collections.abc import Sequence

from torch import Tensor, distributed, nn

from bertbench.config.optimizer import OptimizerSettings
from bertbench.model.logical_tensors import matrices_and_vectors
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.optimizer import Optimizer
from bertbench.parallel.gradients import shares


def shard_optimizer(
    parameters: Sequence[nn.Parameter], options: OptimizerSettings, shards: distributed.ProcessGroup
) -> Optimizer:
    """Return Adam or LAMB for this rank's part of the model; the ranks of `shards` hold parts of the same tensors."""
    matrices, _ = matrices_and_vectors(parameters)
    counted = shares(matrices, shards)

    def whole_norms(norms: Tensor) -> Tensor:
        squares = norms.square() * counted
        distributed.all_reduce(squares, group=shards)
        return squares.sqrt()

    joined = options.trust_ratio and distributed.get_world_size(shards) > 1
    return MultiTensorAdam(parameters, options, whole_norms=whole_norms if joined else None)
