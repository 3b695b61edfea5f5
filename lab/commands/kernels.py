"""`bertbench lab kernels`: compare the GPU step's kernels with budgets, on a machine without a GPU."""

import argparse
from typing import get_args

from bertbench.commands import emit
from bertbench.common.errors import ConfigError
from bertbench.common.paths import shown_path
from bertbench.forecast.kernels.absent_gpu import GPUS, check_triton
from bertbench.forecast.kernels.certificate import Found, certificate
from bertbench.forecast.kernels.step import TOKENS
from bertbench.model.options import ResidualName
from lab.bench.budgets import FILE, broken, budgets

_FEWEST = 1_024  # below, the compiler writes kernels for smaller sizes than a GPU's batches
_FIELDS = ("arch", "piece", "kernels", "launches", "megabytes", "registers_max", "spill_bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the GPUs, the tokens of a step and the optimizer."""
    parser.add_argument(
        "--arch", default=",".join(GPUS), metavar="A,B", help=f"of {', '.join(GPUS)}: A100, H100 and H200, B200 "
        "(default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", type=int, default=TOKENS, metavar="T",
        help=f"tokens of a step on one GPU (default {TOKENS:,}: 96 samples of Wikipedia's mean length)",
    )  # fmt: skip
    parser.add_argument(
        "--residual", choices=get_args(ResidualName), default="fp32",
        help="format of hidden states between layers, like precision.residual (default fp32)",
    )  # fmt: skip
    parser.add_argument(
        "--optimizer", choices=("torch", "triton"), default="torch", help="like optimizer.impl (default torch)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Generate, count and compile; return 1 if a budget is broken."""
    archs = arguments.arch.split(",")
    if unknown := [arch for arch in archs if arch not in GPUS]:
        raise ConfigError(f"--arch: unknown {', '.join(map(repr, unknown))}; choose of {', '.join(GPUS)}")
    if arguments.tokens < _FEWEST:
        raise ConfigError(f"--tokens {arguments.tokens}: expected at least {_FEWEST:,}")
    check_triton()
    found = certificate(
        [arch for arch in GPUS if arch in archs], arguments.tokens, arguments.residual, optimizer=arguments.optimizer
    )
    problems = {(one.arch, one.piece): list(broken(one, budgets())) for one in found}
    rows = [
        {**{field: getattr(one, field) for field in _FIELDS}, "within_budget": not problems[one.arch, one.piece]}
        for one in found
    ]
    all_problems = [problem for several in problems.values() for problem in several]
    emit(arguments.json, rows, "\n".join([*_table(found), *all_problems, *_verdict(all_problems)]))
    return 1 if all_problems else 0


def _table(found: list[Found]) -> list[str]:
    lines = [
        f"BERT-Large, bf16, {found[0].tokens:,} tokens, forward and backward; counted and compiled, not run",
        f"{'':<22} {'Triton':>7} {'':>8} {'':>9} {'beside':>9} {'registers':>9} {'shared':>7} {'spilled':>7}",
        f"{'arch, piece':<22} {'kernels':>7} {'launches':>8} {'MB':>9} {'products':>9} {'a thread':>9} {'bytes':>7} "
        f"{'bytes':>7}",
    ]
    lines += [
        f"{one.arch:<7} {one.piece:<14} {one.kernels:>7,} {one.launches:>8,} {one.megabytes:>9,.0f} "
        f"{one.megabytes_beside_products:>9,.0f} {one.registers_max:>9} {one.shared_bytes_max:>7,} {one.spill_bytes:>7}"
        for one in found
    ]
    return lines


def _verdict(problems: list[str]) -> list[str]:
    return [] if problems else [f"within the budgets of {shown_path(FILE)}"]
