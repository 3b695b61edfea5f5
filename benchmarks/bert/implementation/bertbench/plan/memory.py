"""Estimate the memory of the fullest GPU in training, by contents: weights, gradients, optimizer, activations.

Recorded steps (training/graph_trainer.py) keep the activations of the largest one for themselves, once: all steps
without graphs are taken before the first recording, and later ones use the first one's memory. An evaluation runs
without graphs, in memory of its own.
"""

import math
import re

from bertbench.config import System
from bertbench.config.layout import Coordinate, Layout, vocabulary_rows
from bertbench.config.optimizer import Compression, OptimizerSettings
from bertbench.gradients.gradient_sum import ELEMENT_SUMS
from bertbench.machine.choose_arithmetic import Arithmetic, with_fastest_paths
from bertbench.model.options import unmeasured_precision
from bertbench.model.shape import BertShape
from bertbench.plan.activations import embedding_bytes, forward_bytes, head_bytes, layer_bytes
from bertbench.plan.step_load import Microbatch, largest_part_in_run, load_of

_GB = 1e9
_WEIGHT_BYTES = 4
_STATE_BYTES = 4  # all state of optimizers is fp32


def capacity_gb(system: System) -> float:
    """Return the memory of a GPU in GB, as the system file states it; infinite if it doesn't."""
    match = re.match(r"([\d.]+) *G", system.hardware.accelerator_memory_capacity)
    return float(match[1]) if match else math.inf


def needed_gb(system: System) -> float:
    """Return the total memory of the fullest stage, in GB (10^9 bytes)."""
    return sum(memory_gb(system).values())


def memory_gb(system: System, largest: Microbatch | None = None) -> dict[str, float]:
    """Return the memory of the fullest stage when most is in use, in GB (10^9 bytes) by contents.

    `largest` is the run's largest microbatch (default: that of Wikipedia's lengths). Most memory is in use during the
    warm-up: it computes a large part while it keeps a copy of the weights, which it restores afterwards. If steps are
    recorded, an evaluation can need more than that copy.
    """
    if largest is None:
        largest = load_of(system).largest_simulated_part if system.parallel.splits else largest_part_in_run(system)
    ends = {0, system.layout.pipeline - 1}  # stages in between keep fewer microbatches than the first, and no heads
    return max((_memory(system, stage, largest) for stage in ends), key=lambda parts: sum(parts.values()))


def _memory(system: System, stage: int, largest: Microbatch) -> dict[str, float]:
    """Return the memory of rank `stage` of the pipeline, in GB (10^9 bytes) by contents."""
    layout = system.layout
    shape = system.model.shape()
    parallel = system.parallel
    parameters = stage_parameters(shape, layout, Coordinate(stage, data=0, tensor=0))
    gathered: dict[str, float] = {}
    if parallel.fully_shard:
        parameters //= layout.data
        words = shape.vocab_size
        ends = embedding_parameters(shape, words) + head_parameters(shape, words)
        # one unit with its gradient, and the next unit, which is gathered ahead of its use
        gathered["gathered"] = 3 * _WEIGHT_BYTES * max(ends, layer_parameters(shape)) / _GB
    ranks = layout.data if system.optimizer.sharded else 1
    state = state_bytes(system.optimizer, shape, parameters // ranks)
    if not parallel.splits:
        state += sent_copy_bytes(parameters, system.communication.compression)
    weights = _WEIGHT_BYTES * parameters / _GB
    held = {"weights": weights, "gradients": weights, "optimizer": state / _GB, **gathered}
    if system.clipped_parts > 1:
        held["clipped_parts"] = weights  # a second gradient buffer, to which clipped parts are added

    evaluation = forward_bytes(system, _longest_evaluation(system)) / _GB if records_graphs(system) else 0.0
    if evaluation > weights:
        held["evaluation"] = evaluation
    else:
        held["warm_up_copy"] = weights
    return held | {"activations": activation_bytes(system, largest, stage) / _GB}


def records_graphs(system: System) -> bool:
    """Return whether a run records its steps as CUDA graphs, unless its check of fast paths refuses them."""
    as_set = Arithmetic(unmeasured_precision(system.precision.compute), (), source="the system file")
    return system.launch.device == "cuda" and with_fastest_paths(system, as_set).compile == "graphs"


def _longest_evaluation(system: System) -> Microbatch:
    """Return the size of an evaluation's largest batch, whose samples all have full length, as they are sorted."""
    longest = system.model.max_positions
    tokens = system.evaluation.batch_size * longest
    return Microbatch(tokens, tokens * longest)


def activation_bytes(system: System, microbatch: Microbatch, stage: int = 0) -> float:
    """Return the most bytes of activations at a time: of all microbatches that a stage has begun and not ended."""
    layout = system.layout
    begun = _begun(system, stage)
    layers = system.model.layers / layout.stages  # in one stage
    layer = layer_bytes(system, microbatch)
    if system.parallel.recompute:  # one layer keeps its activations; the others keep their input, in fp32
        kept_input = _WEIGHT_BYTES * microbatch.tokens * system.model.hidden_size / layout.token_shares
        kept = layer + layers * kept_input * begun
    else:
        kept = layers * layer * begun
        if not system.parallel.splits:  # then the last layer returns only the tokens that the heads read
            kept += layer_bytes(system, microbatch, microbatch.masked + microbatch.sequences) - layer
    if stage == 0:
        kept += embedding_bytes(system, microbatch) * begun
    if stage == layout.pipeline - 1:
        kept += head_bytes(system, microbatch)
    return kept


def _begun(system: System, stage: int) -> int:
    """Return how many forward passes wait for their backward pass (arXiv 2104.04473, sections 2.2.1 and 2.2.2)."""
    layout, parts = system.layout, system.parts
    if layout.pipeline == 1:
        return 1
    if system.parallel.schedule == "gpipe":
        return parts
    after = layout.pipeline - 1 - stage
    if layout.virtual_stages == 1:
        return min(parts, after + 1)
    return min(parts * layout.virtual_stages, (layout.virtual_stages - 1) * layout.pipeline + 2 * after + 1)


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


def state_bytes(options: OptimizerSettings, shape: BertShape, held: int) -> int:
    """Return the bytes of state that a rank keeps between steps if its optimizer holds `held` parameters.

    An average of the weights is included.
    """
    numbers = 2 * held  # two moments
    if options.ema_decay:
        numbers += held
    if options.name == "muon":  # a matrix of the encoder has one moment
        hidden, inner = shape.hidden_size, shape.feed_forward_size
        numbers -= shape.layers * (
            4 * hidden * hidden + 2 * hidden * inner
        )  # query, key, value, output; both of the FFN
    return _STATE_BYTES * numbers


def sent_copy_bytes(parameters: int, compression: Compression) -> int:
    """Return the bytes of the rounded gradient, which a rank keeps beside its gradient to send it in 16 bits."""
    return 0 if compression == "none" else ELEMENT_SUMS[compression].element_bytes * parameters
