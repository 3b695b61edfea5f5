"""`lab step`: time training steps of ours and of transformers' BERT on the same batches, in turns, one process each.

A batch has Wikipedia's lengths: it draws one sequence from each equal quantile of their distribution, so every batch
resembles the whole. A step is forward and backward pass and the optimizer, Adam with decoupled weight decay. Rivals are
transformers' stock variants and strong ones (rivals.py); those that group batches by length train on other batches than
ours and are marked as biased. Useful work counts unpadded sequences and heads on masked tokens, like published results,
even if a program does more (padding) or less (our last layer skips tokens that no head reads).
"""

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import torch

from bertbench.balance.lengths import length_shares
from bertbench.common.progress import Progress
from bertbench.data.store.columns import Columns
from bertbench.distributed.memory import keep_freed_memory
from bertbench.loading.batch import batch_of
from bertbench.loading.filler import filled
from bertbench.loading.random_samples import samples_of
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.flops import training_flops
from bertbench.model.loss import weighted_loss
from bertbench.model.options import PrecisionName, default_mode, wants_few_sizes
from bertbench.model.precision import autocast_type, computing
from bertbench.model.products import fastest_products, set_products
from bertbench.model.shape import BertShape
from bertbench.model.sizes import SHAPES
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.foreach import native_adam_step
from bertbench.optim.options import OptimizerSettings
from lab.bench import stock
from lab.bench.peak import MatrixProducts, Product, layer_products
from lab.bench.program import Program, Step, Took
from lab.bench.rivals import LEARNING_RATE, build_rivals, rivals

_WARM_UP = 10
_TOKENS = 2048  # about the size of a batch
_GROUPED_BATCHES = 50  # transformers sorts this many batches together


@dataclass(frozen=True)
class Measured:
    """One program at one size and number format: medians over the rounds, or sums if batches differ in kind."""

    size: str
    dtype: PrecisionName
    name: str
    real_tokens_per_s: float
    samples_per_s: float
    useful_gflops: float
    """Useful work a second, in 10^9 floating-point operations."""
    share_of_gemm: float
    """Useful work over the best rate of large square matrix products in this run, MKL's or oneDNN's."""
    share_of_layer_products: float
    """Useful work over the rate of the model's own products, each shape by the faster library."""
    peak_memory_mb: float
    """Peak memory: weights, gradients, moments and a step's temporaries, each program in its own process."""
    biased: bool
    """Whether batches hold other samples than bertbench's: grouped by length, they aren't a random draw."""
    unpadded_or_trimmed: bool
    """Whether it is a strong rival: heads on masked positions, batches padded to at most their longest."""


@dataclass
class _Arm:
    """One variant of a program, its batches and their times."""

    name: str
    program: Program
    batches: list[Columns]
    biased: bool = False
    strong: bool = False
    took: list[Took] = field(default_factory=list)


def measure(
    sizes: list[str],
    dtypes: list[PrecisionName],
    device: torch.device,
    threads: int,
    batch: int,
    rounds: int,
    compile_stock: bool,
    seed: int,
    progress: Progress,
) -> tuple[list[Measured], MatrixProducts]:
    """Measure every size in every number format; `compile_stock` adds a rival under torch.compile, for minutes."""
    products, results = MatrixProducts(device), []
    for size in sizes:
        for dtype in dtypes:
            shape, batches = SHAPES[size], wikipedia_batches(batch, rounds, seed)
            layers = products_of(shape, batches)
            with ExitStack() as programs:
                ours = programs.enter_context(Program(_ours, threads, device, shape, dtype, seed))
                if device.type == "cpu":  # our memory, never given back, stops growing after about ten steps
                    progress.message(f"{size}, {dtype}: bertbench warms up")
                    for content in wikipedia_batches(batch, _WARM_UP, seed + 1):
                        ours.step("bertbench", content)
                arms = [_Arm("bertbench", ours, batches)]
                if stock.is_here():
                    rival = programs.enter_context(
                        Program(build_rivals, threads, device, shape, dtype, compile_stock, seed)
                    )
                    grouped = _grouped_batches(batch, rounds, seed)
                    arms += [
                        _Arm(kind.name, rival, grouped if kind.grouped else batches, kind.grouped, kind.strong)
                        for kind in rivals(compile_stock, device.type == "cuda")
                    ]
                _take_turns(arms, rounds, products, layers, dtype, device, f"{size}, {dtype}", progress)
            number = _product_type(dtype)
            scales = products.flops[number], products.together(number, layers)
            results += [_measured(arm, size, dtype, *scales) for arm in arms]
    return results, products


def wikipedia_batches(batch: int, count: int, seed: int) -> list[Columns]:
    """Return `count` batches; sequence i of each comes from the i-th of `batch` quantiles of Wikipedia's lengths."""
    cumulative, random = np.cumsum(length_shares()), np.random.default_rng(seed)
    batches = []
    for number in range(count):
        places = (np.arange(batch) + random.random(batch)) / batch
        lengths = np.searchsorted(cumulative, places * cumulative[-1]) + 1
        batches.append(samples_of(lengths[::-1], seed + number))
    return batches


def products_of(shape: BertShape, batches: list[Columns]) -> list[Product]:
    """Return the layers' products on a mean batch."""
    tokens, masked = (np.mean([getattr(content, name).sum() for content in batches]) for name in ("lengths", "masked"))
    return layer_products(shape, round(tokens), round(masked))


def _take_turns(
    arms: list[_Arm], rounds: int, products: MatrixProducts, layers: list[Product], dtype: PrecisionName,
    device: torch.device, what: str, progress: Progress,
) -> None:  # fmt: skip
    """Step every arm twice through its batch of the round, and time the second step.

    The first one generates code for the batch's sizes, which a run meets often, and fills the caches, as a run's last
    step did.
    """
    for number in range(rounds):
        products.try_products(_product_type(dtype), layers)
        for place, arm in enumerate(arms):
            doing = f"{what}: round {number + 1} of {rounds}, {arm.name}"
            progress.update(number * len(arms) + place, rounds * len(arms), doing)
            products.try_again(_product_type(dtype))
            arm.program.step(arm.name, arm.batches[number])
            arm.took.append(arm.program.step(arm.name, arm.batches[number]))


def _measured(arm: _Arm, size: str, dtype: PrecisionName, gemm_flops: float, layer_flops: float) -> Measured:
    shape = SHAPES[size]
    work = np.array(
        [
            (content.lengths.sum(), len(content.lengths), training_flops(shape, content.lengths, content.masked.sum()))
            for content in arm.batches
        ]
    )
    seconds = np.array([took.seconds for took in arm.took])
    if arm.biased:  # its batches are short, medium and long
        tokens, samples, flops = work.sum(0) / seconds.sum()
    else:
        tokens, samples, flops = (statistics.median(column / seconds) for column in work.T)
    return Measured(
        size=size,
        dtype=dtype,
        name=arm.name,
        real_tokens_per_s=round(float(tokens), 1),
        samples_per_s=round(float(samples), 3),
        useful_gflops=round(float(flops) / 1e9, 3),
        share_of_gemm=round(float(flops) / gemm_flops, 4),
        share_of_layer_products=round(float(flops) / layer_flops, 4),
        peak_memory_mb=round(max(took.memory_bytes for took in arm.took) / 2**20, 1),
        biased=arm.biased,
        unpadded_or_trimmed=arm.strong,
    )


def _ours(device: torch.device, shape: BertShape, dtype: PrecisionName, seed: int) -> dict[str, Step]:
    if device.type == "cpu":
        keep_freed_memory()  # a run does the same
    torch.manual_seed(seed)
    model = Bert(shape)
    model.initialize(torch.Generator().manual_seed(seed))
    model.to(device)
    set_arithmetic(model, device, dtype, None)
    if device.type == "cpu":  # a run does the same
        set_products(model, fastest_products(shape, _TOKENS, _product_type(dtype), lambda seconds: seconds))
    fills = wants_few_sizes(device.type, dtype, default_mode(device.type), shape.hidden_size)
    adam = OptimizerSettings(name="adam", learning_rate=LEARNING_RATE)
    optimizer = MultiTensorAdam(model.parameters(), adam, model.fused_parameters(), native_adam_step)

    def step(content: Columns) -> None:
        batch = batch_of(content)
        loaded = (filled(batch) if fills else batch).to(device)
        with computing(dtype, device):
            scores = model(*loaded.inputs, loaded.labels)
        weights = 1 / int(content.masked.sum()), 1 / len(content.lengths)
        weighted_loss(scores, *loaded.labels, *weights).backward()
        optimizer.step(LEARNING_RATE)
        model.zero_grad()

    return {"bertbench": step}


def _grouped_batches(batch: int, count: int, seed: int) -> list[Columns]:
    """Return `count` batches from short to long, like transformers' group_by_length: 50 batches sorted by length."""
    many = np.concatenate([content.lengths for content in wikipedia_batches(batch, _GROUPED_BATCHES, seed)])
    sorted_batches = np.sort(many).reshape(_GROUPED_BATCHES, batch)
    places = ((np.arange(count) + 0.5) * _GROUPED_BATCHES / count).astype(int)
    return [samples_of(sorted_batches[place][::-1], seed + int(place)) for place in places]


def _product_type(dtype: PrecisionName) -> torch.dtype:
    return autocast_type(dtype) or torch.float32
