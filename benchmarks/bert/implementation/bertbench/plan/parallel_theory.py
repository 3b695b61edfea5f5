"""Compute by formulas how much a layout sends and how long it waits: plain arithmetic, without torch.

The formulas are those of Narayanan et al. 2021 (arXiv 2104.04473). Tokens T replace their batch times sequence length,
b s, because only a pipeline's microbatches are padded here. All byte counts are those that one rank sends in a step.
"""

import math

from bertbench.checkpoint.tensor_names import pieces
from bertbench.config import System
from bertbench.config.layout import Coordinate, Layout, vocabulary_rows
from bertbench.config.optimizer import GRADIENT_BYTES
from bertbench.model.shape import BertShape


def ring(ranks: int) -> float:
    """Return the bytes that a rank sends in a ring all-reduce, divided by the bytes of its tensor: 2 (g - 1) / g."""
    return 2 * (ranks - 1) / ranks


def sent_bytes(system: System, place: Coordinate, tokens: int, masked: int) -> dict[str, int]:
    """Return, by dimension, the bytes that a rank sends in a step of `tokens` tokens, with `masked` masked ones."""
    shape, layout = system.model.shape(), system.layout
    if system.parallel.fully_shard:
        # each part gathers the weights twice and scatters gradients: 3 (d - 1) / d, rows rounded up to d
        rows = sum(-(-piece.shape[0] // layout.data) * math.prod(piece.shape[1:]) for piece in pieces(shape))
        return {"data": 3 * system.parts * GRADIENT_BYTES * rows * (layout.data - 1)}
    has_tied_words = layout.pipeline > 1 and place.pipeline in (0, layout.pipeline - 1)
    sent = {
        "tensor": tensor_bytes(system, place, tokens, masked),
        "pipeline": pipeline_bytes(system, place, tokens),
        # the gradient of this rank's part (section 3.3.1)
        "data": round(GRADIENT_BYTES * stage_parameters(shape, layout, place) * ring(layout.data)),
        # the gradient of this rank's word embeddings, summed over the first and the last stage
        "tied words": GRADIENT_BYTES * word_rows(shape, layout, place) * shape.hidden_size if has_tied_words else 0,
    }
    return {dimension: size for dimension, size in sent.items() if size}


def tensor_bytes(system: System, place: Coordinate, tokens: int, masked: int) -> int:
    """Return the bytes that a tensor-parallel rank sends: 8 T h (t - 1) / t numbers for each layer (section 3.2).

    These are two all-reduces in the forward pass and two in the backward pass. Recomputation repeats those of the
    forward pass. With sequence parallelism, each is a gather and a reduce-scatter (arXiv 2205.05198, section 4.2.2),
    which together send as much. The embeddings' gradients and the heads' inputs are then gathered too, and the
    gradients of the LayerNorms are summed. In addition to the layers, there are the sums of a split vocabulary,
    `vocabulary_bytes`.
    """
    return _layers_bytes(system, place, tokens) + vocabulary_bytes(system, place, tokens, masked)


def vocabulary_bytes(system: System, place: Coordinate, tokens: int, masked: int) -> int:
    """Return the bytes that a rank sends because ranks share the rows of the vocabulary, all of them in fp32.

    On the first stage, the tokens' embeddings are summed: T h numbers. On the last stage, two things are summed for
    each masked token: the gradient of its hidden state (h numbers), and three numbers of its loss (highest score, sum
    of exponentials, the label's score).
    """
    layout, hidden = system.layout, system.model.hidden_size
    numbers = 0
    if place.pipeline == 0:
        numbers += tokens * hidden
    if place.pipeline == layout.pipeline - 1:
        numbers += masked * (hidden + 3)
    return round(GRADIENT_BYTES * numbers * ring(layout.tensor))


def _layers_bytes(system: System, place: Coordinate, tokens: int) -> int:
    """Return the bytes that a tensor-parallel rank sends for layers, and to share tokens between layers."""
    layout = system.layout
    layers, numbers = system.model.layers // layout.pipeline, tokens * system.model.hidden_size
    forward_passes = 2 if system.parallel.recompute else 1
    if not layout.sequence:
        width = 2 * _forward_bytes(system) * forward_passes + 2 * GRADIENT_BYTES
        return round(layers * numbers * width * ring(layout.tensor))
    # forward, hidden states are gathered in the format of LayerNorm's output, and products are scattered in their own;
    # backward it is the other way round
    width = 2 * (_forward_bytes(system) + GRADIENT_BYTES)
    gathered = layers * numbers * width * (forward_passes + 1)
    if place.pipeline == 0:
        gathered += numbers * GRADIENT_BYTES
    if place.pipeline == layout.pipeline - 1:
        gathered += numbers * GRADIENT_BYTES
    norms = 4 * layers * system.model.hidden_size * GRADIENT_BYTES
    return round(gathered * ring(layout.tensor) / 2 + norms * ring(layout.tensor))


def pipeline_bytes(system: System, place: Coordinate, tokens: int) -> int:
    """Return the bytes that a stage sends for `tokens` tokens with fillers: T h numbers per boundary (section 3.2).

    A stage sends to the next stage in the forward pass, and to the previous one in the backward pass. Ranks that share
    tokens send their share.
    """
    layout = system.layout
    sends = 0
    for stage in range(place.pipeline, layout.stages, layout.pipeline):
        if stage < layout.stages - 1:
            sends += 1  # forward
        if stage > 0:
            sends += 1  # backward
    return sends * tokens // layout.token_shares * system.model.hidden_size * _forward_bytes(system)


def _forward_bytes(system: System) -> int:
    """Return the bytes of a number that ranks sum in the forward pass, or that stages send.

    Gradients of such sums are in fp32.
    """
    return 2 if system.precision.compute == "bf16" else 4


def layer_parameters(shape: BertShape, tensor: int = 1) -> int:
    """Return the parameters of one layer on one of `tensor` ranks."""
    hidden, inner = shape.hidden_size, shape.feed_forward_size
    split = 4 * hidden * hidden + 3 * hidden + 2 * hidden * inner + inner
    return split // tensor + 6 * hidden  # two biases after the sums, two LayerNorms


def word_rows(shape: BertShape, layout: Layout, place: Coordinate) -> int:
    """Return the rows of the word embeddings that a rank of the first or the last stage holds."""
    return len(vocabulary_rows(shape.vocab_size, layout.tensor, place.tensor))


def embedding_parameters(shape: BertShape, words: int) -> int:
    """Return the parameters of the first stage without its layers, with `words` rows of word embeddings."""
    rows = words + shape.max_positions + shape.token_types
    return (rows + 2) * shape.hidden_size


def head_parameters(shape: BertShape, words: int) -> int:
    """Return the parameters of both heads, without the `words` rows of word embeddings of the first stage."""
    hidden = shape.hidden_size
    return 2 * (hidden * hidden + hidden) + 2 * hidden + words + 2 * hidden + 2


def stage_parameters(shape: BertShape, layout: Layout, place: Coordinate) -> int:
    """Return the parameters in all stages of a rank."""
    total = shape.layers // layout.pipeline * layer_parameters(shape, layout.tensor)
    words = word_rows(shape, layout, place)
    if place.pipeline == 0:
        total += embedding_parameters(shape, words)
    if place.pipeline == layout.pipeline - 1:
        total += head_parameters(shape, words)
        if layout.pipeline > 1:
            total += words * shape.hidden_size
    return total
