"""The registry of gradient sums: a new compression adds a class and an entry here. A run loads only its own."""

from collections.abc import Sequence
from pkgutil import resolve_name

from bertbench.config.optimizer import Communication, Compression, Sync
from bertbench.optim.gradient_sum import ElementSum, GradientSum, HalfSum, Shapes, elements_of
from bertbench.optim.traffic import GRADIENT_BYTES

ELEMENT_SUMS: dict[Compression, type[ElementSum]] = {"none": ElementSum, "fp16": HalfSum, "bf16": HalfSum}
"""Those that send every element, so that any exchange can carry them."""
_OTHER_SUMS: dict[Compression, str] = {
    "int8": "bertbench.optim.error_feedback:Int8Sum",
    "topk": "bertbench.optim.error_feedback:TopKSum",
    "powersgd": "bertbench.optim.powersgd:PowerSgdSum",
}


def sum_class(compression: Compression) -> type[GradientSum]:
    """Return the class of a compression's sum."""
    found: type[GradientSum] = ELEMENT_SUMS.get(compression) or resolve_name(_OTHER_SUMS[compression])
    return found


def bytes_per_step(
    options: Communication,
    shapes: Shapes,
    buckets: Sequence[int] = (),
    ranks: int = 1,
    sync: Sync = Sync(),  # noqa: B008 - immutable
) -> int:
    """Return the bytes that one rank contributes to a step's sums of buckets of these elements.

    Ranks that train alone send weights instead of gradients, spread over the outer interval.
    """
    if sync.outer is not None:
        return -(-GRADIENT_BYTES * elements_of(shapes) // sync.every_steps)
    return sum_class(options.compression).bytes_per_step(options, shapes, buckets, ranks)
