"""Count the bytes of an optimizer's state on one rank for a plan, without building the optimizer."""

from bertbench.config.optimizer import OptimizerSettings
from bertbench.model.shape import BertShape
from bertbench.optim.matrices import deal

_NUMBER = 4  # bytes: all state is fp32


def state_bytes(
    options: OptimizerSettings, averaged: bool, shape: BertShape, held: int, place: tuple[int, int] = (0, 1)
) -> int:
    """Return the bytes of state kept between steps by a rank whose optimizer holds `held` parameters.

    `place` is this rank and the number of ranks that share the state. Whole matrices are dealt to them as in training;
    Adam's remaining parameters count as an equal share a rank. `averaged` adds the average of the weights.
    """
    numbers = 2 * held  # two moments
    if options.name == "muon":
        rank, ranks = place
        matrices = encoder_shapes(shape)
        adam = held - sum(rows * columns for rows, columns in matrices) // ranks
        owners = deal(matrices, ranks)
        dealt = [matrix for matrix, owner in zip(matrices, owners, strict=True) if owner == rank]
        numbers = 2 * adam + sum(rows * columns for rows, columns in dealt)
    return _NUMBER * (numbers + (held if averaged else 0))


def encoder_shapes(shape: BertShape) -> list[tuple[int, int]]:
    """Return the shapes of the encoder's logical matrices, in the order of the model's parameters."""
    hidden, inner = shape.hidden_size, shape.feed_forward_size
    layer = [*[(hidden, hidden)] * 4, (inner, hidden), (hidden, inner)]
    return layer * shape.layers
