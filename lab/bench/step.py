"""`lab step`: time training steps of bertbench and of transformers' BERT on the same batches, in pairs.

A batch has Wikipedia's lengths: one sequence is drawn from each quantile of their distribution, so that every batch
resembles the whole. A step consists of forward pass, backward pass and the optimizer, Adam with decoupled weight decay.
Baselines are stock variants of transformers' BERT and strong ones (baselines.py). Baselines that group batches by
length train on other batches than ours and are marked as biased.

Each program has its own process. Measurements of a baseline alternate with ours, after both have trained on every batch
once. By then, code for the sizes of the batches has been generated, and memory, which a CPU process keeps, has reached
its full size. Useful work counts unpadded sequences and heads on masked tokens, as in published results, even if a
program does more (padding) or less (our last layer skips tokens that no head reads).
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product

import numpy as np
import torch

from bertbench.cli.arguments import words_of
from bertbench.common.progress import Progress
from bertbench.common.tables import table_lines
from bertbench.config.optimizer import OptimizerSettings
from bertbench.data.store.columns import Columns
from bertbench.loading.batch import batch_of
from bertbench.loading.filler import filled_to_round_size
from bertbench.model.arithmetic import autocast_type, computing, set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.options import PrecisionName, default_mode, wants_few_sizes
from bertbench.model.products import fastest_products, set_products
from bertbench.model.shape import SHAPES, BertShape, training_flops
from bertbench.optim.adam import MultiTensorAdam, native_adam_step
from lab.bench import stock
from lab.bench.baselines import BASELINES, LEARNING_RATE, Baseline, build_baseline
from lab.bench.batches import grouped_batches, wikipedia_batches
from lab.bench.harness import (
    BenchResult,
    Ratio,
    add_device,
    alternate,
    command,
    machine_name,
    option,
    paired_ratio,
)
from lab.bench.peak import square_flops
from lab.bench.step_process import Step, StepProcess, Took

_DTYPES: dict[str, tuple[PrecisionName, ...]] = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "bf16", "fp16")}
_OURS = Baseline("bertbench", "ours")
ATTENTIONS = tuple(dict.fromkeys(baseline.attention for baseline in BASELINES))
_TOKENS = 2048  # roughly those of a batch
_GPU_BATCH = 24  # with 48, transformers eager needs over 61 of an H100's 80 GB for BERT-Large, in addition to our 16
_COLUMNS = {
    "tokens/s": "{0[1].real_tokens_per_s:,.0f}", "samples/s": "{0[1].samples_per_s:,.2f}",
    "GFLOP/s": "{0[1].useful_gflops:,.1f}", "of GEMM rate": "{0[1].share_of_gemm:.1%}",
    "MB": "{0[1].peak_memory_mb:,.0f}", "our speed-up": "{0[1].ours_is!s:}",
}  # fmt: skip


@dataclass(frozen=True)
class MeasuredProgram:
    """One program with one size and number format: medians over the rounds, or sums if its batches differ in length."""

    size: str
    dtype: PrecisionName
    name: str
    real_tokens_per_s: float
    samples_per_s: float
    useful_gflops: float
    """Useful work per second, in 10^9 floating-point operations."""
    share_of_gemm: float
    """Useful work divided by the highest rate of large square matrix products in this run, by MKL or oneDNN."""
    peak_memory_mb: float
    """Peak memory of the program's process: weights, gradients, moments and temporary tensors of a step."""
    biased: bool
    """Whether batches contain other samples than bertbench's: grouped by length, they aren't random."""
    unpadded_or_trimmed: bool
    """Whether it is a strong baseline: heads on masked positions only, batches padded to the longest or not at all."""
    ours_is: Ratio
    """How many times as fast bertbench is, measured in pairs."""


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Measure every size with every number format."""
    on_gpu = arguments.device == "cuda"
    sizes = words_of(arguments.sizes, "--sizes", tuple(SHAPES))
    dtypes = words_of(arguments.dtypes or ("bf16" if on_gpu else "fp32,bf16"), "--dtypes", _DTYPES[arguments.device])
    arguments.attention = words_of(arguments.attention, "--attention", ATTENTIONS)
    arguments.batch = arguments.batch or (_GPU_BATCH if on_gpu else 8)
    torch.set_num_threads(arguments.threads)
    if not stock.has_transformers():
        progress.message("transformers is not installed: measuring bertbench only; `make setup` installs it")
    device = torch.device(arguments.device)
    flops = {dtype: square_flops(operand_type(dtype), device) for dtype in dtypes}
    results = [measure_size(size, dtype, flops[dtype], arguments, progress) for size, dtype in product(sizes, dtypes)]
    machine = {
        "name": machine_name(device), "threads": torch.get_num_threads(), "batch": arguments.batch,
        "gemm_gflops": {dtype: round(most / 1e9, 1) for dtype, most in flops.items()},
    }  # fmt: skip
    best = ", ".join(f"{name} {rate:,.0f} GFLOP/s" for name, rate in machine["gemm_gflops"].items())
    head = f"{machine['name']}, {arguments.threads} threads; fastest matrix products: {best}"
    lines = [f"{head}; batches of {arguments.batch}"]
    for results_of_size in results:
        lines += ["", *program_table(results_of_size)]
    return BenchResult({"machine": machine, "results": [*chain(*results)]}, lines)


def measure_size(
    size: str, dtype: PrecisionName, gemm_flops: float, arguments: argparse.Namespace, progress: Progress
) -> list[MeasuredProgram]:
    """Measure bertbench and the installed baselines with one size and number format."""
    device = torch.device(arguments.device)
    rounds = arguments.rounds
    seed = arguments.seed
    batches = wikipedia_batches(arguments.batch, rounds, seed)
    grouped = grouped_batches(arguments.batch, rounds, seed)
    where = arguments.threads, device
    built = SHAPES[size], dtype, seed
    measure_all = partial(alternate, rounds=rounds, warm_up=rounds, progress=progress, what=f"{size}, {dtype}: ")
    measured = partial(_measured, size=size, dtype=dtype, gemm_flops=gemm_flops)
    rows = []
    with StepProcess(_OURS.name, _ours, *where, *built) as our_program:
        ours = {_OURS.name: _visits(our_program, batches)}
        all_of_ours = measure_all(ours)[_OURS.name]
        for kind in _baselines(arguments, device):
            its_batches = grouped if kind.grouped else batches
            with StepProcess(kind.name, build_baseline, *where, kind, *built) as program:
                steps = measure_all({**ours, kind.name: _visits(program, its_batches)})
            our_steps = steps[_OURS.name]
            its_steps = steps[kind.name]
            our_seconds = [step.seconds for step in our_steps]
            its_seconds = [step.seconds for step in its_steps]
            if kind.grouped:  # batches that are grouped by length have no pairs, but the same number of samples
                ours_is = Ratio(sum(its_seconds) / sum(our_seconds))
            else:
                ours_is = paired_ratio(its_seconds, our_seconds)
            rows.append(measured(kind, its_batches, its_steps, ours_is))
            all_of_ours += our_steps
    return [measured(_OURS, batches * (1 + len(rows)), all_of_ours, Ratio(1.0)), *rows]


def _baselines(arguments: argparse.Namespace, device: torch.device) -> list[Baseline]:
    if not stock.has_transformers():
        return []
    chosen = []
    for baseline in BASELINES:
        is_wanted = baseline.attention in arguments.attention and (arguments.compile or not baseline.compiled)
        if is_wanted and device.type in baseline.devices:
            chosen.append(baseline)
    return chosen


def _visits(program: StepProcess, batches: list[Columns]) -> Callable[[int], Took]:
    return lambda number: program.step(batches[number % len(batches)])


def program_table(results: Sequence[MeasuredProgram]) -> list[str]:
    """Return the table of a size and number format, and how much faster bertbench is than unbiased baselines."""
    ours, *others = results
    rows = [(result.name + " (biased)" * result.biased, result) for result in results]
    lines = table_lines(rows, {f"{ours.size}, {ours.dtype}": "{0[0]}", **_COLUMNS})
    if any(not result.biased for result in others):
        strongest = fastest_unbiased(others)
        stock_one = fastest_unbiased([result for result in others if not result.unpadded_or_trimmed])
        lines += [
            f"bertbench is {strongest.ours_is} as fast as the fastest unbiased baseline, {strongest.name}",
            f"and {stock_one.ours_is} as fast as the fastest unbiased stock variant, {stock_one.name}",
        ]
    return lines


def fastest_unbiased(baselines: Sequence[MeasuredProgram]) -> MeasuredProgram:
    """Return the baseline that bertbench beats by the least, of those that draw their batches at random."""
    return min((baseline for baseline in baselines if not baseline.biased), key=_lead)


def _lead(result: MeasuredProgram) -> float:
    return result.ours_is.value


def _measured(
    kind: Baseline, batches: list[Columns], took: list[Took], ours_is: Ratio,
    size: str, dtype: PrecisionName, gemm_flops: float,
) -> MeasuredProgram:  # fmt: skip
    shape = SHAPES[size]
    work = np.array(
        [
            (content.lengths.sum(), len(content.lengths), training_flops(shape, content.lengths, content.masked.sum()))
            for content in batches
        ]
    )
    seconds = np.array([step.seconds for step in took])
    if kind.grouped:  # its batches have different lengths
        tokens, samples, flops = work.sum(0) / seconds.sum()
    else:
        tokens, samples, flops = (statistics.median(column / seconds) for column in work.T)
    return MeasuredProgram(
        size=size,
        dtype=dtype,
        name=kind.name,
        real_tokens_per_s=round(float(tokens), 1),
        samples_per_s=round(float(samples), 3),
        useful_gflops=round(float(flops) / 1e9, 3),
        share_of_gemm=round(float(flops) / gemm_flops, 4),
        peak_memory_mb=round(max(step.memory_bytes for step in took) / 2**20, 1),
        biased=kind.grouped,
        unpadded_or_trimmed=kind.strong,
        ours_is=ours_is,
    )


def _ours(device: torch.device, shape: BertShape, dtype: PrecisionName, seed: int) -> Step:
    torch.manual_seed(seed)
    model = Bert(shape)
    model.initialize(torch.Generator().manual_seed(seed))
    model.to(device)
    set_arithmetic(model, device, dtype, None)
    if device.type == "cpu":  # as in a run
        set_products(model, fastest_products(shape, _TOKENS, operand_type(dtype), lambda seconds: seconds))
    fills = wants_few_sizes(device.type, dtype, default_mode(device.type), shape.hidden_size)
    adam = OptimizerSettings(name="adam", learning_rate=LEARNING_RATE)
    optimizer = MultiTensorAdam(model.parameters(), adam, model.fused_parameters(), native_adam_step)

    def step(content: Columns) -> None:
        batch = batch_of(content)
        loaded = (filled_to_round_size(batch) if fills else batch).to(device)
        with computing(dtype, device):
            sums = model.loss_sums(loaded.inputs, loaded.labels)
        weights = 1 / int(content.masked.sum()), 1 / len(content.lengths)
        sums.weighted(*weights).backward()
        optimizer.step(LEARNING_RATE)
        model.zero_grad()

    return step


def operand_type(dtype: PrecisionName) -> torch.dtype:
    """Return the number format of operands in matrix products."""
    return autocast_type(dtype) or torch.float32


add_arguments, run = command(
    measure, ("--threads", 1, "threads on a CPU"), ("--rounds", 3, "timed steps of each program"),
    ("--batch", None, "sequences per step (default 8 on a CPU, 24 on a GPU)"),
    more=[
        option("--sizes", default="small", metavar="A,B", help=f"some of {', '.join(SHAPES)} (default small)"),
        option(
            "--dtypes", metavar="A,B",
            help="some of fp32, bf16 and, on a GPU, fp16 (default fp32,bf16 on a CPU, bf16 on a GPU)",
        ),
        option(
            "--attention", default=",".join(ATTENTIONS), metavar="A,B",
            help=f"transformers' attention: some of {', '.join(ATTENTIONS)} (default all); eager needs the most memory",
        ),
        add_device,
        option(
            "--compile", action=argparse.BooleanOptionalAction, default=True,
            help="also measure transformers with torch.compile (default), which takes minutes",
        ),
    ],
    seeds="lengths, tokens and weights",
)  # fmt: skip
