"""Read the limits of budgets.yaml, and list those that a piece breaks.

The file explains its own fields.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

from bertbench.forecast.kernels.certificate import Found

FILE = Path(__file__).with_name("budgets.yaml")


class Megabytes(NamedTuple):
    """A limit that grows with the batch."""

    fixed: float = 0
    per_1000_tokens: float = 0

    def at(self, tokens: int) -> float:
        """Return the limit for a batch."""
        return self.fixed + self.per_1000_tokens * tokens / 1000


class PieceBudget(NamedTuple):
    """Limits of one piece."""

    kernels: int
    launches: int
    megabytes: Megabytes
    megabytes_beside_products: Megabytes


class KernelBudget(NamedTuple):
    """Limits of each kernel."""

    registers: int
    spill_bytes: int
    elements_of_one_block: int


class Budgets(NamedTuple):
    """Limits for one pair of torch and Triton."""

    every_kernel: KernelBudget
    pieces: dict[str, PieceBudget]
    with_triton_optimizer: dict[str, PieceBudget]


@cache
def budgets(version: str = torch.__version__) -> Budgets:
    """Read the limits for a version of torch: those of the newest pair in the file that is no newer."""
    pairs = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    # the first four characters: NVIDIA's 2.11.0a0 is 2.11 as well
    limits = next(limits for oldest, limits in pairs.items() if version[:4] >= oldest)
    pieces = ({name: _piece(one) for name, one in limits[group].items()} for group in Budgets._fields[1:])
    return Budgets(KernelBudget(**limits["every_kernel"]), *pieces)


def _piece(limits: dict[str, Any]) -> PieceBudget:
    megabytes = {name: Megabytes(**limits[name]) for name in ("megabytes", "megabytes_beside_products")}
    return PieceBudget(**{**limits, **megabytes})


def broken(found: Found, limits: Budgets) -> Iterator[str]:
    """Yield each limit that a piece breaks, as a sentence."""
    piece, kernel = limits.pieces[found.piece], limits.every_kernel
    if found.optimizer == "triton":
        piece = limits.with_triton_optimizer.get(found.piece, piece)
    held: list[tuple[str, float, float]] = [
        ("Triton kernels", found.kernels, piece.kernels),
        ("launches", found.launches, piece.launches),
        ("MB", found.megabytes, piece.megabytes.at(found.tokens)),
        ("MB beside products", found.megabytes_beside_products, piece.megabytes_beside_products.at(found.tokens)),
        ("registers a thread", found.registers_max, kernel.registers),
        ("bytes spilled a thread", found.spill_bytes, kernel.spill_bytes),
        ("elements read by a grid of one", found.elements_of_one_block, kernel.elements_of_one_block),
    ]
    for what, value, limit in held:
        if value > limit:
            yield f"{found.arch} {found.piece}: {value:,.0f} {what}, the budget is {limit:,.0f}"
