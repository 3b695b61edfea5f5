"""Count the bytes that a plan's ranks keep and send in a step: plain arithmetic, without torch."""

from bertbench.config.optimizer import Communication, Compression, Sync
from bertbench.optim.traffic import GRADIENT_BYTES


def carried_bytes(parameters: int, options: Communication, sync: Sync, ranks: int) -> int:
    """Return the bytes that a rank keeps between steps besides weights, gradients and optimizer state.

    With local updates, a rank keeps the weights of the last outer step and its velocity; with delayed gradients, a ring
    of buffers; with int8 and top-k, the errors.
    """
    copies = 0.0
    if sync.outer is not None:
        _, momentum = sync.outer
        copies = 2 if momentum else 1
    elif sync.delay:
        copies = sync.delay + 1
    elif options.compression in ("int8", "topk"):
        copies = 1 + (1 / ranks if options.compression == "int8" else 0)
    return round(GRADIENT_BYTES * parameters * copies)


def link_bytes_per_step(
    handed_over: int, parameters: int, ranks: int, sharded: bool, compression: Compression = "none"
) -> int:
    """Return the bytes that one rank sends in a step with `handed_over` bytes in its sums, without buckets' padding.

    A ring all-reduce of n bytes over R ranks sends 2 (R - 1) / R n over each link, a reduce-scatter or an all-gather
    half of that: with sliced optimizer state, gradients take the one and fp32 weights the other. int8's all-to-all and
    all-gather send as much as a ring; top-k's all-gather forwards every rank's contribution.
    """
    if compression == "topk":
        return (ranks - 1) * handed_over
    gathered = GRADIENT_BYTES * parameters if sharded else handed_over
    return (ranks - 1) * (handed_over + gathered) // ranks
