"""Compute, by a formula, the bytes that a forward pass keeps for its backward pass.

An encoder layer keeps, on each rank, for T tokens with P pairs of tokens in the same sequence:

    i D T                    the input of the product that computes query, key and value
    3 e D / t T              query, key and value, which attention's gradient reads
    i D / t T                attention's output, the input of the next product
    (4 D + 8) / s T, twice   each LayerNorm's input, mean and standard deviation, all in fp32
    D / s T, twice           dropout masks on a GPU, one byte for each element; the loops of a CPU draw them again
    i D T                    the input of the first feed-forward product
    e F / t T                that product's output, for GELU's gradient
    i F / t T                GELU's output, the input of the second product
    i (4 D D + 2 D F) / t    the matrices in the format of products' inputs; in fp32 the weights are used directly

with hidden size D, feed-forward size F, H heads, e bytes for each number that a product writes (4 in fp32, 2 in bf16,
fp16 and fp8), and i bytes for each number that it reads: e, but 1 in fp8. There attention's own kernel keeps its output
in bf16 besides. t ranks share the layer (`parallel.tensor`): each keeps its own heads and feed-forward columns, and
everything else in full. With `parallel.sequence`, ranks also share the tokens between products (s = t, otherwise
s = 1), but gather the inputs of products. The masked-LM head keeps the scores of a rank's own rows of the vocabulary.

In addition, attention keeps, depending on its kernel:

    flash    4 H / t T                       the logarithm of each row's sum; it computes probabilities again (Dao 2023,
                                             arXiv 2307.08691)
    loops    e H / t P                       probabilities; each row is padded to a multiple of 32 tokens
    plain    e D / t T + (4 + 1 + e) H / t P the scaled query; softmax's output in fp32, dropout's mask in bytes, and
                                             probabilities after dropout, the input of the next product

The terms are those of Korthikanti et al. 2022 (arXiv 2205.05198, sections 4.1 and 4.2). With e = 2 and F = 4 D, they
count 34 bytes for each token and hidden feature; here it is 38, because the inputs of LayerNorms are in fp32.

These are torch's own operations. The pieces that torch.compile fuses on a GPU (model/compiled_layer.py) keep less:

    (r D + 4) T, twice       each LayerNorm's normalised values, r bytes each, and 1 / standard deviation in fp32
    i 8 T                    columns of ones beside query's, key's and value's input; not in fp8
    2 V M                    the gradient of the scores of M masked tokens, or, if it has fewer elements than that, the
                             gradient of the V rows of the output matrix

where r is 2 if hidden states between layers are in bf16, otherwise 4. The layers keep no dropout masks: the backward
pass computes them again. In bf16 with such hidden states that is 32 bytes for each token and hidden feature.

On a CPU the formula counts the compiled loops of model/loops.py. It doesn't count what a batch holds anyway: token ids,
positions and labels.
"""

import math
from typing import Literal

from bertbench.config import System
from bertbench.config.layout import vocabulary_rows
from bertbench.model.arithmetic import autocast_type
from bertbench.model.attention import FLASH_CAPABILITY, flash_takes
from bertbench.model.options import BIAS_COLUMNS, unchecked_mode, without_fp8
from bertbench.plan.step_load import Microbatch

_FP32 = 4
_MASK = 1
_ROW_STEP = 32  # on a CPU, rows of probabilities are padded to a multiple of this, as in model/sequences.py
_MOMENTS = 8  # bytes of a token's mean and 1 / standard deviation, in fp32


def layer_bytes(system: System, microbatch: Microbatch, returned_tokens: float | None = None) -> float:
    """Return the bytes that one encoder layer keeps on one of the ranks that share it.

    If `returned_tokens` is given, the layer computes only that many tokens after attention; selecting them copies
    attention's output.
    """
    layout = system.layout
    output_bytes = _product_bytes(system)
    input_bytes = _input_bytes(system)
    hidden, inner = system.model.hidden_size, system.model.feed_forward_size / layout.tensor
    heads_hidden = hidden / layout.tensor  # the hidden size of one rank's heads
    returned = microbatch.tokens if returned_tokens is None else returned_tokens

    before_attention = input_bytes * hidden + output_bytes * 3 * heads_hidden
    if is_compiled(system):
        norm = _residual_bytes(system) * hidden + _MOMENTS / 2
        if input_bytes == output_bytes:
            before_attention += input_bytes * BIAS_COLUMNS
    else:
        mask = _mask_bytes(system, system.model.hidden_dropout) * hidden
        norm = (_FP32 * hidden + _MOMENTS + mask) / layout.token_shares
    after_attention = 2 * norm + input_bytes * (hidden + inner) + output_bytes * inner
    if _kernel(system) != "flash" or returned_tokens is not None or input_bytes < output_bytes:
        after_attention += input_bytes * heads_hidden  # otherwise the kernel keeps this tensor already
    matrices = 4 * hidden * heads_hidden + 2 * hidden * inner
    return (
        before_attention * microbatch.tokens
        + _attention_bytes(system, microbatch)
        + after_attention * returned
        + _cast_bytes(input_bytes, matrices)
    )


def embedding_bytes(system: System, microbatch: Microbatch) -> float:
    """Return the bytes that the embeddings keep: LayerNorm's input and moments in fp32, and dropout's mask."""
    hidden = system.model.hidden_size
    mask = _mask_bytes(system, system.model.hidden_dropout) * hidden
    return (_FP32 * hidden + _MOMENTS + mask) * microbatch.tokens


def head_bytes(system: System, microbatch: Microbatch) -> float:
    """Return the bytes that both heads and their losses keep.

    Products keep their inputs: the hidden states for both heads, the masked tokens after LayerNorm, the pairs after
    tanh. GELU and LayerNorm keep their inputs too; autocast computes LayerNorm in fp32 on a GPU, and in the input's
    format on a CPU. The loss keeps a number for each word of the vocabulary: log softmax in fp32 on a GPU, the scores
    in the loops of a CPU, and their gradient in the format of products if it is compiled. If the vocabulary is split,
    the loss keeps softmax in fp32 for this rank's words.
    """
    layout = system.layout
    hidden, number = system.model.hidden_size, _product_bytes(system)
    by_loops = _kernel(system) == "loops"
    compiled = is_compiled(system)
    wide = number if by_loops or compiled else _FP32
    score = wide if layout.tensor == 1 else _FP32
    words = len(vocabulary_rows(system.model.vocab_size, layout.tensor, 0))
    masked_token = 3 * number * hidden + wide * hidden + _MOMENTS + score * words
    sequence = 2 * number * hidden
    matrices = words * hidden + 2 * hidden * hidden + 2 * hidden
    return masked_token * microbatch.masked + sequence * microbatch.sequences + _cast_bytes(number, matrices)


def forward_bytes(system: System, microbatch: Microbatch) -> float:
    """Return the most bytes at a time of a forward pass that keeps nothing, as in an evaluation.

    That is inside a feed-forward part, which has its input, GELU's input and output and, from before, the residual,
    query, key, value and attention's output; or at the end, where the masked tokens have their scores.
    """
    hidden, inner = system.model.hidden_size, system.model.feed_forward_size
    number = _product_bytes(system)
    feed_forward = (_residual_bytes(system) * hidden + number * (5 * hidden + 2 * inner)) * microbatch.tokens
    scores = number * system.model.vocab_size * microbatch.masked
    return max(feed_forward, scores)


def is_compiled(system: System) -> bool:
    """Return whether torch.compile fuses the model's pieces on a GPU."""
    device = system.launch.device
    can_be_compiled = device == "cuda" and system.layout.tensor == 1
    return can_be_compiled and unchecked_mode(system.compute.compile, device) != "none"


def _residual_bytes(system: System) -> int:
    """Return the bytes of a number of the hidden states between layers; `auto` counts as it does without a refusal."""
    narrows = without_fp8(system.precision.compute) == "bf16" and not system.parallel.splits
    return 2 if narrows and system.precision.residual in ("auto", "bf16") else _FP32


def _attention_bytes(system: System, microbatch: Microbatch) -> float:
    """Return the bytes that attention keeps in addition to query, key and value."""
    tensor, number = system.layout.tensor, _product_bytes(system)
    hidden, heads = system.model.hidden_size / tensor, system.model.attention_heads / tensor
    match _kernel(system):
        case "flash":
            return (number * hidden + _FP32 * heads) * microbatch.tokens
        case "loops":
            row = math.ceil(microbatch.mean_length / _ROW_STEP) * _ROW_STEP
            return number * heads * row * microbatch.tokens
        case "plain":
            rate = system.model.attention_dropout
            is_copied = number < _FP32 or rate > 0  # otherwise softmax's output itself is the product's input
            probability = _FP32 + _mask_bytes(system, rate) + (number if is_copied else 0)
            return number * hidden * microbatch.tokens + probability * heads * microbatch.pairs


def _kernel(system: System) -> Literal["flash", "loops", "plain"]:
    """Return which kernel computes attention on the system's device (model/attention.py).

    A GPU whose compute capability the system doesn't state counts as an A100 or newer.
    """
    dtype = autocast_type(system.precision.compute)
    if system.launch.device == "cuda":
        width = system.model.hidden_size // system.model.attention_heads
        if dtype is None or not flash_takes(dtype, width):
            return "plain"
        capability = system.compute_capability or FLASH_CAPABILITY
        return "flash" if capability >= FLASH_CAPABILITY else "plain"
    return "plain" if system.precision.compute == "fp16" else "loops"


def _product_bytes(system: System) -> int:
    """Return the bytes of a number that a product writes, and reads in the heads."""
    dtype = autocast_type(system.precision.compute)
    return _FP32 if dtype is None else dtype.itemsize


def _input_bytes(system: System) -> int:
    """Return the bytes of a number that a product of an encoder layer reads."""
    return 1 if system.precision.compute == "fp8" else _product_bytes(system)


def _cast_bytes(number: int, weights: float) -> float:
    """Return the bytes of the copies of matrices that products read and keep; fp32 needs no copies."""
    return number * weights if number < _FP32 else 0.0


def _mask_bytes(system: System, rate: float) -> int:
    """Return the bytes that dropout keeps for each element."""
    return 0 if rate == 0 or _kernel(system) == "loops" else _MASK
