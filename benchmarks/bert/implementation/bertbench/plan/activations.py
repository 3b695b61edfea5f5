"""Count the bytes that a forward pass keeps for its backward pass, by a formula.

An encoder layer keeps, on each rank, for T tokens with P pairs of tokens in the same sequence:

    e D T                    the input of query, key and value's product
    3 e D / t T              query, key and value: attention's gradient reads them
    e D / t T                attention's output: the input of the next product
    (4 D + 8) / s T, twice   each LayerNorm's input, its mean and its deviation, all in fp32
    D / s T, twice           dropout masks on a GPU, a byte an element; a CPU's loops draw them again
    e D T                    the input of the first feed-forward product
    2 e F / t T              that product's output, for GELU's gradient, and GELU's output, for the second product
    e (4 D D + 2 D F) / t    the matrices in 16 bits; in fp8 1 byte a number; in fp32 they are the weights themselves

with hidden size D, feed-forward size F, H heads, and e bytes of a number in products: 4 in fp32, 2 in bf16 and fp16.
t ranks share the layer (`parallel.tensor`): each keeps its heads and its feed-forward columns, and the rest whole. With
`parallel.sequence` they also share the tokens between products (s = t, else 1), but gather the inputs of products. The
masked-LM head keeps scores of a rank's own rows of the vocabulary.

Attention keeps besides, by its kernel:

    flash    4 H / t T                       the logarithm of each row's sum: it computes probabilities again (Dao 2023,
                                             arXiv 2307.08691)
    loops    e H / t P                       probabilities; each row has room for a multiple of 32 tokens
    plain    e D / t T + (4 + 1 + e) H / t P the scaled query; softmax's output in fp32, dropout's mask in bytes, and
                                             dropped probabilities, the input of the next product

The terms are those of Korthikanti et al. 2022 (arXiv 2205.05198, sections 4.1 and 4.2). They count 34 bytes for each
token and hidden number at e = 2, F = 4 D; here LayerNorms' inputs are fp32, which makes 38.

The formula counts torch's own operations: pieces that torch.compile fuses keep less. On a CPU it counts the compiled
loops of model/loops.py. It leaves out what a batch holds anyway: token ids, places and labels.
"""

import math
from typing import Literal

from bertbench.config import System
from bertbench.config.layout import vocabulary_rows
from bertbench.model.arithmetic import autocast_type
from bertbench.model.attention import FLASH_CAPABILITY, flash_takes
from bertbench.plan.step_load import Microbatch

_FP32 = 4
_MASK = 1
_ROW_STEP = 32  # of a CPU's probabilities, as in model/sequences.py
_MOMENTS = 8  # mean and 1 / deviation of a token, fp32


def layer_bytes(system: System, microbatch: Microbatch, returned_tokens: float | None = None) -> float:
    """Return what one encoder layer keeps on one of the ranks that share it.

    The layer computes only `returned_tokens` behind attention, where they are given, after a selection that copies
    attention's output.
    """
    layout, number = system.layout, _product_bytes(system)
    hidden, inner = system.model.hidden_size, system.model.feed_forward_size / layout.tensor
    heads_hidden = hidden / layout.tensor  # of the heads of one rank
    returned = microbatch.tokens if returned_tokens is None else returned_tokens

    before_attention = number * (hidden + 3 * heads_hidden)
    mask = _mask_bytes(system, system.model.hidden_dropout) * hidden
    norm = (_FP32 * hidden + _MOMENTS + mask) / layout.token_shares
    after_attention = 2 * norm + number * (hidden + 2 * inner)
    if _kernel(system) != "flash" or returned_tokens is not None:
        after_attention += number * heads_hidden  # else it is the tensor that the kernel keeps
    matrices = 4 * hidden * heads_hidden + 2 * hidden * inner
    return (
        before_attention * microbatch.tokens
        + _attention_bytes(system, microbatch)
        + after_attention * returned
        + (matrices if system.precision.compute == "fp8" else _cast_bytes(system, matrices))
    )


def embedding_bytes(system: System, microbatch: Microbatch) -> float:
    """Return what the embeddings keep: LayerNorm's input and moments, in fp32, and dropout's mask."""
    hidden = system.model.hidden_size
    mask = _mask_bytes(system, system.model.hidden_dropout) * hidden
    return (_FP32 * hidden + _MOMENTS + mask) * microbatch.tokens


def head_bytes(system: System, microbatch: Microbatch) -> float:
    """Return what both heads and their losses keep.

    Products keep their inputs: both heads' hidden states, the masked tokens behind LayerNorm, the pairs behind tanh.
    GELU and LayerNorm keep theirs; autocast computes LayerNorm in fp32 on a GPU, and leaves its format on a CPU. The
    loss keeps a number for each word of the vocabulary: on a GPU log softmax in fp32, in a CPU's loops the scores. Of a
    split vocabulary it keeps softmax in fp32, for the words of this rank.
    """
    layout = system.layout
    hidden, number = system.model.hidden_size, _product_bytes(system)
    by_loops = _kernel(system) == "loops"
    wide = number if by_loops else _FP32
    score = wide if layout.tensor == 1 else _FP32
    words = len(vocabulary_rows(system.model.vocab_size, layout.tensor, 0))
    masked_token = 3 * number * hidden + wide * hidden + _MOMENTS + score * words
    sequence = 2 * number * hidden
    matrices = words * hidden + 2 * hidden * hidden + 2 * hidden
    return masked_token * microbatch.masked + sequence * microbatch.sequences + _cast_bytes(system, matrices)


def _attention_bytes(system: System, microbatch: Microbatch) -> float:
    """Return what attention keeps besides query, key and value."""
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
            is_copied = number < _FP32 or rate > 0  # else softmax's output is the product's input
            probability = _FP32 + _mask_bytes(system, rate) + (number if is_copied else 0)
            return number * hidden * microbatch.tokens + probability * heads * microbatch.pairs


def _kernel(system: System) -> Literal["flash", "loops", "plain"]:
    """Return which attention computes on the system's device (model/attention.py).

    GPUs whose compute capability the system doesn't state count as an A100 or newer.
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
    """Return the bytes of a number in products."""
    dtype = autocast_type(system.precision.compute)
    return _FP32 if dtype is None else dtype.itemsize


def _cast_bytes(system: System, weights: float) -> float:
    """Return the bytes of the copies of matrices that autocast makes and products keep; in fp32 there are none."""
    number = _product_bytes(system)
    return number * weights if number < _FP32 else 0.0


def _mask_bytes(system: System, rate: float) -> int:
    """Return the bytes that dropout keeps for each element."""
    return 0 if rate == 0 or _kernel(system) == "loops" else _MASK
