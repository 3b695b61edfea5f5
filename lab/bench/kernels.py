"""`lab kernels`: compare the GPU step's kernels with budgets, on a machine without a GPU."""

import argparse

from bertbench.cli.arguments import words_of
from bertbench.common.errors import ConfigError
from bertbench.common.paths import shown_path
from bertbench.common.progress import Progress
from bertbench.common.tables import table_lines
from bertbench.model.fp8_scaling import FP8_CAPABILITY
from bertbench.model.options import PrecisionName
from lab.bench.budgets import FILE, broken_budgets, broken_by_own_kernel, budgets
from lab.bench.harness import BenchResult, command, option
from lab.kernels.absent_gpu import GPUS, check_triton
from lab.kernels.certificate import certificate
from lab.kernels.own_kernels import count_instructions
from lab.kernels.step import PIECES, TOKENS

_FEWEST = 1_024  # for fewer tokens, the compiler generates other kernels than for a GPU's batches
_FIELDS = ("arch", "piece", "kernels", "launches", "megabytes", "registers_max", "spill_bytes")
_CHANGED_BY_FP8 = ("attention", "layer")  # a layer can't be counted without attention
_COLUMNS_OF_OWN = {
    "arch": "{0.arch}", "our own kernel": "{0.kernel}", "instructions/element": "{0.instructions_per_element:}",
    "spilled bytes": "{0.spill_bytes:}",
}  # fmt: skip
_COLUMNS = {
    "arch": "{0.arch}", "piece": "{0.piece}", "Triton kernels": "{0.kernels:,}", "launches": "{0.launches:,}",
    "MB": "{0.megabytes:,.0f}", "without products": "{0.megabytes_beside_products:,.0f}",
    "registers/thread": "{0.registers_max:}", "shared bytes": "{0.shared_bytes_max:,}",
    "spilled bytes": "{0.spill_bytes:}",
}  # fmt: skip


def measure(arguments: argparse.Namespace, _: Progress) -> BenchResult:
    """Generate, count and compile the kernels; the exit code is 1 if a budget is exceeded."""
    archs = _architectures(arguments.arch, arguments.precision)
    if arguments.tokens < _FEWEST:
        raise ConfigError(f"--tokens {arguments.tokens}: expected at least {_FEWEST:,}")
    check_triton()
    pieces = certificate(
        archs,
        arguments.tokens,
        arguments.residual,
        _CHANGED_BY_FP8 if arguments.precision == "fp8" else PIECES,
        arguments.precision,
    )
    problems: list[str] = []
    rows = []
    for piece in pieces:
        problems_of_piece = list(broken_budgets(piece, budgets()))
        problems += problems_of_piece
        row = {name: getattr(piece, name) for name in _FIELDS}
        rows.append({**row, "within_budget": not problems_of_piece})
    own_kernels = []
    for arch in archs:
        own_kernels += count_instructions(arch, GPUS[arch])
    for kernel in own_kernels:
        problems_of_kernel = list(broken_by_own_kernel(kernel, budgets()))
        problems += problems_of_kernel
        rows.append({**kernel._asdict(), "within_budget": not problems_of_kernel})
    size = f"{arguments.precision}, {arguments.tokens:,} tokens"
    head = f"BERT-Large, {size}, forward and backward; counted and compiled, not run"
    verdict = problems or [f"within the budgets of {shown_path(FILE)}"]
    text = [head, *table_lines(pieces, _COLUMNS), "", *table_lines(own_kernels, _COLUMNS_OF_OWN), *verdict]
    return BenchResult(rows, text, code=1 if problems else 0)


def _architectures(asked: str | None, precision: PrecisionName) -> list[str]:
    """Return the given architectures, or all that support the format. Raises ConfigError for one that doesn't."""
    able = list(GPUS)
    if precision == "fp8":
        able = [arch for arch, gpu in GPUS.items() if gpu.capability >= FP8_CAPABILITY]
    archs = words_of(asked or ",".join(able), "--arch", GPUS)
    for arch in archs:
        if arch not in able:
            raise ConfigError(f"--precision fp8: {arch} has no fp8; give --arch {','.join(able)}, or --precision bf16")
    return archs


add_arguments, run = command(
    measure, ("--tokens", TOKENS, "tokens of a step on one GPU; 96 samples of Wikipedia's mean length"),
    more=[
        option(
            "--arch", metavar="A,B",
            help=f"some of {', '.join(GPUS)}: A100, H100 and H200, B200 (default: all that support the format)",
        ),
        option(
            "--residual", choices=("fp32", "bf16"), default="fp32",
            help="format of hidden states between layers, like precision.residual (default fp32)",
        ),
        option(
            "--precision", choices=("bf16", "fp8"), default="bf16",
            help="like precision.compute; with fp8, only the layer is counted, which it changes (default bf16)",
        ),
    ],
)  # fmt: skip
