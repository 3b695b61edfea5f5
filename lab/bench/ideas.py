"""`lab ideas`: compare optimizations of a CPU's step with plain torch code, if their gain depends on the processor.

The plain alternative is torch's own operator, used as well as possible. Optimizations that compute or send less on
every processor aren't timed: heads that read masked tokens only, a last layer that returns only those, one gradient for
the word embeddings, sums in shared memory. Neither are choices that a run itself measures: number format and library of
products. Both sides compute the same function of the same inputs, forward and backward, on one thread. Medians count.

Our loops in C++ are kept only if they are faster, and that depends on processors and torch's releases. A loss function
of our own was 1.13 x as fast as torch's on an Intel Xeon, but 0.77 x as fast on an AMD EPYC, so torch's is used now.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bertbench.balance.random_samples import samples_of_lengths
from bertbench.common.progress import Progress
from bertbench.distributed.device import keep_freed_memory
from bertbench.loading.batch import Batch, batch_of
from bertbench.machine.processor import processor
from bertbench.model import loops
from bertbench.model.attention import Attention, cpu_attention
from bertbench.model.linear import onednn_multiplies
from bertbench.model.sequences import Sequences
from bertbench.model.shape import SHAPES, BertShape
from bertbench.optim.muon import orthogonalize
from lab.bench.batches import wikipedia_batches
from lab.bench.harness import BenchResult, alternate, command, milliseconds, paired_ratio, table_lines

_RATE = 0.1  # BERT's dropout
_TOLERANCE = 1e-4  # allowed difference in fp32: absolute, and as a share of an element
_COLUMNS = {
    "idea": "{0[idea]}", "plain": "{0[plain]}", "plain ms": "{0[plain_ms]:,.4g}", "ours ms": "{0[ours_ms]:,.4g}",
    "ratio": "{0[ratio]:.2f} x", "95 %": "{0[ratio_low]:.2f} to {0[ratio_high]:.2f}", "size": "{0[size]}",
}  # fmt: skip

Tensors = tuple[Tensor, ...]
Side = Callable[[], Tensors]


@dataclass(frozen=True)
class Trial:
    """An idea and its plain alternative."""

    plain: str
    """A description of the plain alternative."""
    size: str
    sides: tuple[Side, Side]
    """The plain function and ours."""
    comparable: bool = True
    """Whether results must agree. Results with dropout or in bf16 can't agree exactly; tests check them separately."""


@dataclass(frozen=True)
class TrialInputs:
    """The inputs of the trials."""

    shape: BertShape
    seed: int
    sequences: int = 4
    """The number of sequences in a batch of Wikipedia's lengths."""

    def batch(self) -> Batch:
        """Return a batch of random tokens."""
        lengths = wikipedia_batches(self.sequences, 1, self.seed)[0].lengths
        return batch_of(
            samples_of_lengths(np.minimum(lengths, self.shape.max_positions), self.seed, self.shape.vocab_size)
        )


Trials = Iterator[Trial]


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Return the rows of all ideas."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as in a run
    setting = TrialInputs(SHAPES["medium"], arguments.seed)
    rows = []
    for number, name in enumerate(IDEAS):
        progress.update(number, len(IDEAS), f"measuring {name}")
        rows += rows_of_idea(name, setting, arguments.rounds)
    head = f"one thread of {processor()}; medians of {arguments.rounds} interleaved calls"
    return BenchResult(rows, [head, *table_lines(rows, _COLUMNS)])


def rows_of_idea(name: str, setting: TrialInputs, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of an idea."""
    torch.manual_seed(setting.seed)
    return [{"idea": name, **timed_pair(trial, rounds)} for trial in IDEAS[name](setting)]


def timed_pair(trial: Trial, rounds: int) -> dict[str, Any]:
    """Time both sides `rounds` times, after a warm-up round. Raises AssertionError if the results disagree."""
    if trial.comparable:
        plain, ours = (side() for side in trial.sides)
        torch.testing.assert_close(ours, plain, rtol=_TOLERANCE, atol=_TOLERANCE)

    def timed(side: Side, _: int) -> float:
        return milliseconds(side)

    times = alternate({place: partial(timed, side) for place, side in enumerate(trial.sides)}, rounds, warm_up=1)
    plain_times, our_times = times.values()
    ratio = paired_ratio(plain_times, our_times)
    return {
        "plain": trial.plain,
        "size": trial.size,
        "plain_ms": round(statistics.median(plain_times), 4),
        "ours_ms": round(statistics.median(our_times), 4),
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }


def _size_of(text: str, batch: Batch) -> str:
    return f"{text}, {len(batch.tokens_T):,} tokens"


def attention_trials(setting: TrialInputs) -> Trials:
    """Compare attention head by head in the cache; without dropout, as in evaluation, torch's is fused."""
    kinds = [(_RATE, torch.float32), (0.0, torch.float32)]
    if onednn_multiplies(torch.bfloat16):
        kinds.append((_RATE, torch.bfloat16))
    for rate, dtype in kinds:
        yield _attention(setting, rate, dtype)


def norm_trials(setting: TrialInputs) -> Trials:
    """Compare one loop that computes dropout by a hash, the residual and LayerNorm."""
    batch, width = setting.batch(), setting.shape.hidden_size
    hidden_TD, residual_TD, gradient_TD = torch.randn(3, len(batch.tokens_T), width)
    add_norm = loops.AddNorm(width)
    hidden_TD.requires_grad_()

    def ours() -> Tensors:
        return _results(add_norm(hidden_TD, residual_TD, _RATE), hidden_TD, gradient_TD)

    size = _size_of("medium's hidden states", batch)
    yield Trial("torch's dropout, sum and norm", size, (loops.unused()(ours), ours), comparable=False)


def orthogonalization_trials(setting: TrialInputs) -> Trials:
    """Compare Muon's orthogonalization of small matrices in the cache."""
    del setting  # uses the demo's size; for matrices larger than 512 x 512, a run uses torch's products
    matrices_BMN = torch.randn(8, 128, 128)

    def ours() -> Tensors:
        return (orthogonalize(matrices_BMN, 4, torch.bfloat16),)

    sides = loops.unused()(ours), ours
    yield Trial("batched products", "8 matrices of 128 x 128, bf16", sides, comparable=False)


def torch_attention(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Compute the same as `cpu_attention` by torch's operator, called once for neighbouring sequences of one length."""
    contexts = []
    by_length = qkv_T3HK.split([group.sequences * group.length for group in sequences.groups])
    for group, part_N3HK in zip(sequences.groups, by_length, strict=True):
        query, key, value = part_N3HK.unflatten(0, (group.sequences, group.length)).transpose(1, 3).unbind(2)
        context = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        contexts.append(context.transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts)


def _attention(setting: TrialInputs, rate: float, dtype: torch.dtype) -> Trial:
    batch, shape = setting.batch(), setting.shape
    heads, width = shape.attention_heads, shape.hidden_size // shape.attention_heads
    qkv_T3HK = torch.randn(len(batch.tokens_T), 3, heads, width, dtype=dtype, requires_grad=True)
    gradient_THK = torch.randn(len(batch.tokens_T), heads, width, dtype=dtype)

    def passes(function: Attention) -> Tensors:
        return _results(function(qkv_T3HK, batch.sequences, rate), qkv_T3HK, gradient_THK)

    size = _size_of(f"medium's, dropout {rate:g}{', bf16' if dtype == torch.bfloat16 else ''}", batch)
    sides = partial(passes, torch_attention), partial(passes, cpu_attention)
    return Trial("torch's attention, by length", size, sides, comparable=not rate)


def _results(output: Tensor, source: Tensor, gradient: Tensor) -> Tensors:
    """Return an output and the gradient of its input."""
    return output.detach(), *torch.autograd.grad(output, source, gradient)


IDEAS: dict[str, Callable[[TrialInputs], Trials]] = {
    "attention": attention_trials, "norm": norm_trials, "orthogonalization": orthogonalization_trials,
}  # fmt: skip
add_arguments, run = command(measure, ("--rounds", 7, "timed calls of each side"), seeds="lengths, tokens and weights")
