"""Formulas of what a layout sends and how long it waits: plain arithmetic, without torch.

Formulas of Narayanan et al. 2021 (arXiv 2104.04473), with tokens T for their batch times sequence, b s: nothing here is
padded but a pipeline's microbatches. All byte counts are what one rank sends in a step.
"""

from typing import NamedTuple

from bertbench.config.layout import Coordinate, Layout
from bertbench.model.shape import BertShape

_GRADIENT_BYTES = 4


def bubble(pipeline: int, microbatches: int, virtual_stages: int = 1) -> float:
    """Return idle time of a pipeline's ranks over their compute time: (p - 1) / (v m) (sections 2.2.1 and 2.2.2)."""
    return (pipeline - 1) / (virtual_stages * microbatches)


def ring(ranks: int) -> float:
    """Return the bytes that a rank sends in an all-reduce over the size of its tensor: 2 (g - 1) / g."""
    return 2 * (ranks - 1) / ranks


class Widths(NamedTuple):
    """Bytes of a number that tensor-parallel ranks sum, and that stages send each other."""

    forward: int
    backward: int
    between_stages: int

    @classmethod
    def of(cls, precision: str) -> "Widths":
        """Return the widths: under autocast products are bf16; the residual stream and its gradient stay fp32."""
        return cls(2, 4, 2) if precision == "bf16" else cls(4, 4, 4)


def tensor_bytes(
    shape: BertShape, layout: Layout, place: Coordinate, tokens: int, widths: Widths, recompute: bool
) -> int:
    """Return bytes sent per step for `tokens` tokens: 8 T h (t - 1) / t numbers a layer (section 3.2).

    These are two all-reduces forward and two backward. Recomputation makes the forward ones again. With sequence
    parallelism each is a gather and a reduce-scatter (arXiv 2205.05198, section 4.2.2), which send as much; the
    embeddings' gradients and the heads' inputs are gathered too, and the gradients of the LayerNorms are summed.
    """
    layers, numbers = shape.layers // layout.pipeline, tokens * shape.hidden_size
    if not layout.sequence:
        width = 2 * widths.forward * (1 + recompute) + 2 * widths.backward
        return round(layers * numbers * width * ring(layout.tensor))
    # hidden states are gathered as they stay, products are scattered as they come; backward the reverse
    width = 2 * (widths.forward + widths.backward)
    ends = (place.pipeline == 0) + (place.pipeline == layout.pipeline - 1)
    gathered = layers * numbers * width * (2 + recompute) + ends * numbers * widths.backward
    norms = 4 * layers * shape.hidden_size * _GRADIENT_BYTES
    return round(gathered * ring(layout.tensor) / 2 + norms * ring(layout.tensor))


def pipeline_bytes(shape: BertShape, layout: Layout, place: Coordinate, tokens: int, widths: Widths) -> int:
    """Return bytes sent per step for `tokens` tokens, fillers included: T h numbers per stage boundary (section 3.2).

    Forward to the next stage, and backward to the previous one; ranks that share tokens send their share.
    """
    stages = range(place.pipeline, layout.stages, layout.pipeline)
    sends = sum((stage < layout.stages - 1) + (stage > 0) for stage in stages)
    return sends * tokens // layout.token_shares * shape.hidden_size * widths.between_stages


def tied_bytes(shape: BertShape, layout: Layout, place: Coordinate) -> int:
    """Return bytes of the word embeddings' gradient, summed over the first and the last stage."""
    holds = layout.pipeline > 1 and place.pipeline in (0, layout.pipeline - 1)
    return holds * _GRADIENT_BYTES * shape.vocab_size * shape.hidden_size


def data_bytes(elements: int, layout: Layout) -> int:
    """Return bytes of the gradient of this rank's `elements`: 2 (d - 1) / d of it (section 3.3.1)."""
    return round(_GRADIENT_BYTES * elements * ring(layout.data))


def fully_sharded_bytes(elements: int, layout: Layout, parts: int) -> int:
    """Return bytes of weights gathered twice and gradients scattered in every part of a step: 3 (d - 1) / d of them.

    `elements` counts the whole model, each tensor's rows rounded up to a multiple of d.
    """
    return round(parts * _GRADIENT_BYTES * elements * 3 * (layout.data - 1) / layout.data)


def layer_parameters(shape: BertShape, tensor: int = 1) -> int:
    """Return the parameters of one layer on one of `tensor` ranks."""
    hidden, inner = shape.hidden_size, shape.feed_forward_size
    split = 4 * hidden * hidden + 3 * hidden + 2 * hidden * inner + inner
    return split // tensor + 6 * hidden  # two biases behind the sums, two LayerNorms


def embedding_parameters(shape: BertShape) -> int:
    """Return the parameters of the first stage, beside its layers."""
    rows = shape.vocab_size + shape.max_positions + shape.token_types
    return (rows + 2) * shape.hidden_size


def head_parameters(shape: BertShape) -> int:
    """Return the parameters of both heads, without the word embeddings, which they share with the first stage."""
    hidden = shape.hidden_size
    return 2 * (hidden * hidden + hidden) + 2 * hidden + shape.vocab_size + 2 * hidden + 2


def stage_parameters(shape: BertShape, layout: Layout, place: int) -> int:
    """Return the parameters of all stages of rank `place` of a pipeline."""
    total = shape.layers // layout.pipeline * layer_parameters(shape, layout.tensor)
    if place == 0:
        total += embedding_parameters(shape)
    if place == layout.pipeline - 1:
        total += head_parameters(shape)
        if layout.pipeline > 1:
            total += shape.vocab_size * shape.hidden_size
    return total
