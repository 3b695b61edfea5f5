"""`bertbench lab step`: time the training step beside transformers' BERT."""

import argparse
import os

import torch

from bertbench.commands import check_at_least_one, seed, words_of
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.model.options import PrecisionName
from bertbench.model.sizes import SHAPES
from lab.bench import stock
from lab.bench.step import Measured, measure
from lab.commands.record import add_record, emit_measured

_DTYPES: tuple[PrecisionName, ...] = ("fp32", "bf16", "fp16", "fp8")
_CPU_DTYPES = ("fp32", "bf16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add sizes, formats, the device and the number of steps."""
    parser.add_argument("--sizes", default="small", metavar="A,B", help=f"of {', '.join(SHAPES)} (default small)")
    parser.add_argument(
        "--dtypes", metavar="A,B", help=f"of {', '.join(_DTYPES)} (default fp32,bf16 on a CPU, bf16 on a GPU)"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default cpu)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads on a CPU (default 1)")
    parser.add_argument("--batch", type=int, metavar="N", help="sequences a step (default 8 on a CPU, 48 on a GPU)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="timed steps of each program (default 3)")
    parser.add_argument("--seed", type=seed, default=1, help="seed of lengths, tokens and weights (default 1)")
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=None,
        help="also measure transformers under torch.compile (default on a GPU only: on a CPU it takes minutes and "
        "didn't help)",
    )  # fmt: skip
    add_record(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print a table."""
    on_gpu = arguments.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise ConfigError("--device cuda: found no GPU that torch can use; leave --device out")
    sizes = words_of(arguments.sizes, "--sizes", tuple(SHAPES))
    dtypes = words_of(arguments.dtypes or ("bf16" if on_gpu else ",".join(_CPU_DTYPES)), "--dtypes", _DTYPES)
    if not on_gpu and (wrong := [dtype for dtype in dtypes if dtype not in _CPU_DTYPES]):
        raise ConfigError(f"--dtypes {','.join(wrong)}: not on a CPU; choose of {', '.join(_CPU_DTYPES)}")
    check_at_least_one(arguments, "threads", "rounds", "batch")
    batch = arguments.batch or (48 if on_gpu else 8)
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    compiled = on_gpu if arguments.compile is None else arguments.compile
    with Progress() as progress:
        if not stock.is_here():
            progress.message("transformers is not installed: measuring bertbench only; `make setup` installs it")
        results, products = measure(
            sizes, dtypes, device, arguments.threads, batch, arguments.rounds, compiled, arguments.seed, progress
        )
    names: dict[torch.dtype, PrecisionName] = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    rates = {names[dtype]: round(flops / 1e9, 1) for dtype, flops in products.flops.items()}
    machine = {
        "name": torch.cuda.get_device_name() if on_gpu else processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "batch": batch,
        "gemm_gflops": rates,
        "products": [
            {
                "dtype": names[dtype], "rows": product.rows, "inner": product.inner, "columns": product.columns,
                "gflops": {library: round(flops / 1e9, 1) for library, flops in by_library.items()},
            }
            for (dtype, product), by_library in products.rates.items()
        ],
    }  # fmt: skip
    best = ", ".join(f"{name} {rate:,.0f} GFLOP/s" for name, rate in rates.items())
    lines = [f"{machine['name']}, {machine['threads']} threads; fastest matrix products: {best}; batches of {batch}"]
    for size in sizes:
        for dtype in dtypes:
            lines += _table([result for result in results if (result.size, result.dtype) == (size, dtype)])
    emit_measured(arguments, {"machine": machine, "results": results}, "\n".join(lines))
    return 0


def _table(results: list[Measured]) -> list[str]:
    ours, *others = results
    heads = (
        f"{'tokens/s':>10} {'samples/s':>10} {'GFLOP/s':>9} {'of gemm':>8} {'of layers':>9} {'MB':>7} {'ours is':>8}"
    )
    lines = [f"\n{f'{ours.size}, {ours.dtype}':<50} {heads}"]
    for result in results:
        mark = " (biased)" if result.biased else ""
        lines.append(
            f"{result.name + mark:<50} {result.real_tokens_per_s:>10,.0f} {result.samples_per_s:>10,.2f} "
            f"{result.useful_gflops:>9,.1f} {result.share_of_gemm:>8.1%} {result.share_of_layer_products:>9.1%} "
            f"{result.peak_memory_mb:>7,.0f} {_times(ours, result):>8}"
        )
    unbiased = [result for result in others if not result.biased]
    if unbiased:
        strongest = _fastest(unbiased)
        stock = _fastest([result for result in unbiased if not result.unpadded_or_trimmed])
        lines.append(
            f"bertbench is {_times(ours, strongest)} as fast as the strongest unbiased rival, {strongest.name}"
        )
        lines.append(f"and {_times(ours, stock)} as fast as the best unbiased stock variant, {stock.name}")
    return lines


def _fastest(results: list[Measured]) -> Measured:
    return max(results, key=lambda result: result.real_tokens_per_s)


def _times(ours: Measured, other: Measured) -> str:
    return f"{ours.real_tokens_per_s / other.real_tokens_per_s:.2f} x"
