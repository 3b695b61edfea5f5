"""`lab ideas`: time the ideas of a CPU's step that another processor might decide otherwise, beside plain code.

The plain alternative is torch's own operator, used as well as it can be, or our code without the idea. Ideas that
compute or send less on any processor aren't timed: heads on masked tokens, a last layer of what they read, sums in
shared memory. Nor are those that a run itself measures: number format and library of products. Both sides compute the
same function of the same inputs, forward and backward, on one thread; medians count.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.distributed.memory import keep_freed_memory
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.random_samples import samples_of
from bertbench.machine.processor import processor
from bertbench.model.attention import Attention, cpu_attention, plain_attention
from bertbench.model.bert import look_up
from bertbench.model.dropout import DropoutFunction, apply_dropout, plain_dropout
from bertbench.model.linear import onednn_multiplies
from bertbench.model.sequences import Sequences
from bertbench.model.shape import SHAPES, BertShape
from lab.bench.batches import wikipedia_batches
from lab.bench.harness import Found, command, in_turns, milliseconds, paired_ratio, table

_RATE = 0.1  # BERT's dropout
_TOLERANCE = 1e-4  # allowed difference in fp32: absolute, and as a share of an element
_TORCH = "torch's attention, by length"
_COLUMNS = {
    "idea": "{0[idea]}", "plain": "{0[plain]}", "ms": "{0[plain_ms]:,.4g}", "ours, ms": "{0[ours_ms]:,.4g}",
    "ratio": "{0[ratio]:.2f} x", "95 %": "{0[ratio_low]:.2f} to {0[ratio_high]:.2f}", "size": "{0[size]}",
}  # fmt: skip

Tensors = tuple[Tensor, ...]
Side = Callable[[], Tensors]


@dataclass(frozen=True)
class Trial:
    """An idea and its plain alternative."""

    plain: str
    """The alternative in words."""
    size: str
    sides: tuple[Side, Side]
    """Plain, ours."""
    comparable: bool = True
    """Whether results agree; masks of dropout can't: tests/model/test_cpu_arithmetic.py checks both."""


@dataclass(frozen=True)
class Setting:
    """What the trials compute on."""

    shapes: Mapping[str, BertShape]
    """Medium and demo."""
    demo_sequences: int
    demo_short: float
    """Share of the demo's sequences that have a random length; the others have the longest."""
    seed: int
    sequences: int = 4
    """In a batch of Wikipedia's lengths."""

    def batch(self, size: str) -> Batch:
        """Return a batch of random tokens with the size's lengths."""
        shape, random = self.shapes[size], np.random.default_rng(self.seed)
        if size == "demo":
            drawn = random.integers(5, shape.max_positions, self.demo_sequences, endpoint=True)
            short = random.random(self.demo_sequences) < self.demo_short
            lengths = np.sort(np.where(short, drawn, shape.max_positions))[::-1]
        else:
            lengths = wikipedia_batches(self.sequences, 1, self.seed)[0].lengths
        return batch_of(samples_of(np.minimum(lengths, shape.max_positions), self.seed, shape.vocab_size))


Trials = Iterator[Trial]


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Return the rows of all ideas."""
    torch.set_num_threads(1)
    keep_freed_memory()  # a run does the same
    demo = load_system("cpu_demo")
    assert demo.data.recipe is not None
    shapes = {**SHAPES, "demo": demo.model.shape()}
    setting = Setting(shapes, demo.local_batch, demo.data.recipe.short_seq_prob, arguments.seed)
    rows = []
    for number, name in enumerate(IDEAS):
        progress.update(number, len(IDEAS), f"measuring {name}")
        rows += rows_of(name, setting, arguments.rounds)
    head = f"one thread of {processor()}; medians of {arguments.rounds} calls in turns"
    return Found(rows, [head, *table(rows, _COLUMNS)])


def rows_of(name: str, setting: Setting, rounds: int) -> list[dict[str, Any]]:
    """Return an idea's rows."""
    torch.manual_seed(setting.seed)
    return [{"idea": name, **compare(trial, rounds)} for trial in IDEAS[name](setting)]


def compare(trial: Trial, rounds: int) -> dict[str, Any]:
    """Time both sides `rounds` times, after one round that warms up. Raises AssertionError if results disagree."""
    if trial.comparable:
        plain, ours = (side() for side in trial.sides)
        torch.testing.assert_close(ours, plain, rtol=_TOLERANCE, atol=_TOLERANCE)

    def timed(side: Side, _: int) -> float:
        return milliseconds(side)

    times = in_turns({place: partial(timed, side) for place, side in enumerate(trial.sides)}, rounds, warm_up=1)
    plain_ms, ours_ms = (round(statistics.median(own), 4) for own in times.values())
    ratio, low, high = paired_ratio(*times.values())
    return {
        "plain": trial.plain, "size": trial.size, "plain_ms": plain_ms, "ours_ms": ours_ms, "ratio": ratio,
        "ratio_low": low, "ratio_high": high,
    }  # fmt: skip


def _size_of(text: str, batch: Batch) -> str:
    return f"{text}, {len(batch.tokens_T):,} tokens"


def words(setting: Setting) -> Trials:
    """Add the lookup's gradient to the head's."""
    batch, shape = setting.batch("medium"), setting.shapes["medium"]
    word_VD = nn.Parameter(torch.randn(shape.vocab_size, shape.hidden_size))
    hidden_MD = torch.randn(len(batch.masked_at_M), shape.hidden_size)
    gradient_TD = torch.randn(len(batch.tokens_T), shape.hidden_size)
    gradient_MV = torch.randn(len(hidden_MD), shape.vocab_size)

    def passes(rows_TD: Tensor, matrix_VD: Tensor) -> Tensors:
        scores_MV = functional.linear(hidden_MD, matrix_VD)
        return torch.autograd.grad((rows_TD, scores_MV), word_VD, (gradient_TD, gradient_MV))

    sides = (
        lambda: passes(functional.embedding(batch.tokens_T, word_VD), word_VD),
        lambda: passes(*look_up(word_VD, batch.tokens_T)),
    )
    yield Trial("a gradient for each use", _size_of("medium's words", batch), sides)


def attention(setting: Setting) -> Trials:
    """Compute attention in place; without dropout, as in evaluation, torch's is fused. bf16 gathers all heads."""
    kinds = [(_RATE, torch.float32), (0.0, torch.float32)]
    if onednn_multiplies(torch.bfloat16):
        kinds.append((_RATE, torch.bfloat16))
    for rate, dtype in kinds:
        yield _attention(setting, "medium", _TORCH, torch_attention, rate, dtype)


def squares(setting: Setting) -> Trials:
    """Let short sequences share products, in squares."""
    for name, plain in (("a product per length", plain_attention), (_TORCH, torch_attention)):
        yield _attention(setting, "demo", name, plain, 0.0, torch.float32)


def dropout(setting: Setting) -> Trials:
    """Draw dropout's masks from bits."""
    batch, width = setting.batch("medium"), setting.shapes["medium"].hidden_size
    hidden_TD, residual_TD, gradient_TD = torch.randn(3, len(batch.tokens_T), width)
    hidden_TD.requires_grad_()

    def passes(function: DropoutFunction) -> Tensors:
        return _results(function(hidden_TD, _RATE, residual_TD), hidden_TD, gradient_TD)

    sides = partial(passes, plain_dropout), partial(passes, apply_dropout)
    yield Trial("torch's dropout", _size_of("medium's hidden states", batch), sides, comparable=False)


def torch_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Compute `cpu_attention` by torch's operator, once for neighbouring sequences of one length."""
    contexts = []
    by_length = qkv_T3HK.split([group.sequences * group.length for group in sequences.groups])
    for group, part_N3HK in zip(sequences.groups, by_length, strict=True):
        query, key, value = part_N3HK.unflatten(0, (group.sequences, group.length)).transpose(1, 3).unbind(2)
        context = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        contexts.append(context.transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts)


def _attention(setting: Setting, size: str, name: str, plain: Attention, rate: float, dtype: torch.dtype) -> Trial:
    batch, shape = setting.batch(size), setting.shapes[size]
    heads, width = shape.attention_heads, shape.hidden_size // shape.attention_heads
    qkv_T3HK = torch.randn(len(batch.tokens_T), 3, heads, width, dtype=dtype, requires_grad=True)
    gradient_THK = torch.randn(len(batch.tokens_T), heads, width, dtype=dtype)

    def passes(function: Attention) -> Tensors:
        return _results(function(qkv_T3HK, batch.sequences, rate), qkv_T3HK, gradient_THK)

    size = _size_of(f"{size}'s, dropout {rate:g}{', bf16' if dtype == torch.bfloat16 else ''}", batch)
    return Trial(name, size, (partial(passes, plain), partial(passes, cpu_attention)), comparable=not rate)


def _results(output: Tensor, source: Tensor, gradient: Tensor) -> Tensors:
    """Return an output and the gradient of what it was computed from."""
    return output.detach(), *torch.autograd.grad(output, source, gradient)


IDEAS: dict[str, Callable[[Setting], Trials]] = {
    "words": words, "attention": attention, "squares": squares, "dropout": dropout,
}  # fmt: skip
add_arguments, run = command(measure, ("--rounds", 7, "timed calls of each side"), seeds="lengths, tokens and weights")
