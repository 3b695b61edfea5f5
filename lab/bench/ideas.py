"""`lab ideas`: time the ideas of a CPU's step that another processor might decide otherwise, beside plain code.

The plain alternative is torch's own operator, used as well as it can be, or our code without the idea. Ideas that
compute or send less on any processor aren't timed: heads on masked tokens, a last layer of what they read, sums in
shared memory. Nor are those that a run itself measures: number format and library of products.
"""

import argparse
from collections.abc import Sequence
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from bertbench.commands import words_of
from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.distributed.memory import keep_freed_memory
from bertbench.machine.processor import processor
from bertbench.model.attention import Attention, cpu_attention, plain_attention
from bertbench.model.bert import look_up
from bertbench.model.dropout import DropoutFunction, apply_dropout, plain_dropout
from bertbench.model.linear import onednn_multiplies
from bertbench.model.sequences import Sequences
from bertbench.model.shape import SHAPES
from lab.bench.harness import Found, command, option, table
from lab.bench.trial import DIFFERENT_MASKS, FP32, Idea, Setting, Tensors, Trial, TrialRow, Trials, compare, size_of

_RATE = 0.1  # BERT's dropout
_TORCH = "torch's attention, by length"
_COLUMNS = {
    "idea": "{0.idea}", "plain": "{0.plain}", "ms": "{0.plain_ms:,.4g}", "ours, ms": "{0.ours_ms:,.4g}",
    "ratio": "{0.ratio:.2f} x",
    "95 %": "{0.ratio_low:.2f} to {0.ratio_high:.2f}", "size": "{0.size}", "file": "{0.file}",
}  # fmt: skip


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Return the rows of the ideas."""
    names = words_of(arguments.ideas, "--ideas", tuple(IDEAS))
    torch.set_num_threads(1)
    keep_freed_memory()  # a run does the same
    demo = load_system("cpu_demo")
    assert demo.data.recipe is not None
    shapes = {**SHAPES, "demo": demo.model.shape()}
    setting = Setting(shapes, demo.local_batch, demo.data.recipe.short_seq_prob, arguments.seed)
    rows: list[TrialRow] = []
    for number, name in enumerate(names):
        progress.update(number, len(names), f"measuring {name}")
        rows += rows_of(name, setting, arguments.rounds)
    machine = {"processor": processor(), "threads": 1, "torch": torch.__version__, "rounds": arguments.rounds}
    head = f"one thread of {processor()}; medians of {arguments.rounds} calls in turns"
    return Found({"machine": machine, "results": rows}, [head, *table(rows, _COLUMNS)])


def rows_of(name: str, setting: Setting, rounds: int) -> list[TrialRow]:
    """Return an idea's rows. Raises RunError if results disagree."""
    torch.manual_seed(setting.seed)
    return [compare(name, trial, rounds) for trial in IDEAS[name](setting)]


def words(setting: Setting) -> Trials:
    """Add the lookup's gradient to the head's."""
    batch, shape = setting.batch("medium"), setting.shapes["medium"]
    word_VD = nn.Parameter(torch.randn(shape.vocab_size, shape.hidden_size))
    hidden_MD = torch.randn(len(batch.masked_at_M), shape.hidden_size)
    gradient_TD = torch.randn(len(batch.tokens_T), shape.hidden_size)
    gradient_MV = torch.randn(len(hidden_MD), shape.vocab_size)

    def passes(rows_TD: torch.Tensor, matrix_VD: torch.Tensor) -> Tensors:
        scores_MV = functional.linear(hidden_MD, matrix_VD)
        return torch.autograd.grad((rows_TD, scores_MV), word_VD, (gradient_TD, gradient_MV))

    sides = (
        lambda: passes(functional.embedding(batch.tokens_T, word_VD), word_VD),
        lambda: passes(*look_up(word_VD, batch.tokens_T)),
    )
    yield Trial("a gradient for each use", size_of("medium's words", batch), "model/bert.py", sides)


def attention(setting: Setting) -> Trials:
    """Compute attention in place; without dropout, as in evaluation, torch's is fused. bf16 gathers all heads."""
    kinds = [(_RATE, torch.float32), (0.0, torch.float32)]
    if onednn_multiplies(torch.bfloat16):
        kinds.append((_RATE, torch.bfloat16))
    for rate, dtype in kinds:
        yield _attention(setting, "medium", _TORCH, torch_attention, rate, "model/attention.py", dtype)


def squares(setting: Setting) -> Trials:
    """Let short sequences share products, in squares."""
    for name, plain in (("a product per length", plain_attention), (_TORCH, torch_attention)):
        yield _attention(setting, "demo", name, plain, 0.0, "model/sequences.py", torch.float32)


def dropout(setting: Setting) -> Trials:
    """Draw dropout's masks from bits."""
    batch, width = setting.batch("medium"), setting.shapes["medium"].hidden_size
    hidden_TD, residual_TD, gradient_TD = torch.randn(3, len(batch.tokens_T), width)
    hidden_TD.requires_grad_()

    def passes(function: DropoutFunction) -> Tensors:
        return _results(function(hidden_TD, _RATE, residual_TD), [hidden_TD], gradient_TD)

    sides = partial(passes, plain_dropout), partial(passes, apply_dropout)
    size = size_of("medium's hidden states", batch)
    yield Trial("torch's dropout", size, "model/dropout.py", sides, tolerance=DIFFERENT_MASKS)


def torch_attention(qkv_T3HK: torch.Tensor, sequences: Sequences, dropout: float) -> torch.Tensor:
    """Compute `cpu_attention` by torch's operator, once for neighbouring sequences of one length."""
    contexts = []
    by_length = qkv_T3HK.split([group.sequences * group.length for group in sequences.groups])
    for group, part_N3HK in zip(sequences.groups, by_length, strict=True):
        query, key, value = part_N3HK.unflatten(0, (group.sequences, group.length)).transpose(1, 3).unbind(2)
        context = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        contexts.append(context.transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts)


def _attention(
    setting: Setting, size: str, name: str, plain: Attention, rate: float, file: str, dtype: torch.dtype
) -> Trial:
    batch, shape = setting.batch(size), setting.shapes[size]
    heads, width = shape.attention_heads, shape.hidden_size // shape.attention_heads
    qkv_T3HK = torch.randn(len(batch.tokens_T), 3, heads, width, dtype=dtype, requires_grad=True)
    gradient_THK = torch.randn(len(batch.tokens_T), heads, width, dtype=dtype)

    def passes(function: Attention) -> Tensors:
        return _results(function(qkv_T3HK, batch.sequences, rate), [qkv_T3HK], gradient_THK)

    size = size_of(f"{size}'s, dropout {rate:g}{', bf16' if dtype == torch.bfloat16 else ''}", batch)
    sides = partial(passes, plain), partial(passes, cpu_attention)
    return Trial(name, size, file, sides, tolerance=DIFFERENT_MASKS if rate else FP32)


def _results(output: torch.Tensor, inputs: Sequence[torch.Tensor], gradient: torch.Tensor | None = None) -> Tensors:
    """Return an output and its gradients."""
    return output.detach(), *torch.autograd.grad(output, inputs, gradient)


_ALL: tuple[Idea, ...] = (words, attention, squares, dropout)
IDEAS = {idea.__name__: idea for idea in _ALL}
_NAMES = ",".join(IDEAS)
add_arguments, run = command(
    measure, ("--rounds", 7, "timed calls of each side"),
    more=[option("--ideas", default=_NAMES, metavar="A,B", help=f"of {_NAMES.replace(',', ', ')} (default all)")],
    seeds="lengths, tokens and weights",
)  # fmt: skip
