"""The registry of gradient sums: a new compression adds a class and an entry here."""

from bertbench.optim.error_feedback import Int8Sum, TopKSum
from bertbench.optim.gradient_sum import ElementSum, Gradient, GradientSum, HalfSum
from bertbench.optim.options import Communication, Compression, OuterStep
from bertbench.optim.powersgd import PowerSgdSum
from bertbench.optim.traffic import GRADIENT_BYTES

ELEMENT_SUMS: dict[Compression, type[ElementSum]] = {"none": ElementSum, "fp16": HalfSum, "bf16": HalfSum}
"""Those that send every element, so that any exchange can carry them."""
SUMS: dict[Compression, type[GradientSum]] = {
    **ELEMENT_SUMS, "int8": Int8Sum, "topk": TopKSum, "powersgd": PowerSgdSum,
}  # fmt: skip


def bytes_per_step(options: Communication, gradient: Gradient, outer: OuterStep | None = None) -> int:
    """Return the bytes that one rank contributes to a step's sums.

    With `outer`, ranks send weights instead of gradients, spread over the outer interval.
    """
    if outer is not None:
        return -(-GRADIENT_BYTES * gradient.elements // outer.every_steps)
    return SUMS[options.compression].bytes_per_step(options, gradient)
