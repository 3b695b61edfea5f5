"""Read the limits in budgets.yaml, which explains its fields, and list those that a piece of the step exceeds."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from lab.kernels.certificate import PieceResources
from lab.kernels.own_kernels import Instructions

FILE = Path(__file__).with_name("budgets.yaml")


@cache
def budgets() -> dict[str, Any]:
    """Read the limits for this version of torch: those of the newest version in the file that isn't newer than it."""
    pairs: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    # compares the first four characters, so that NVIDIA's 2.11.0a0 is 2.11 as well
    return pairs[max(oldest for oldest in pairs if oldest <= torch.__version__[:4])]


def broken_budgets(found: PieceResources, limits: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each limit that a piece exceeds."""
    piece, kernel = limits["pieces"][found.piece], limits["every_kernel"]
    if found.precision == "fp8":
        piece = limits["in_fp8"].get(found.piece, piece)
    held: list[tuple[str, float, float]] = [
        ("Triton kernels", found.kernels, piece["kernels"]),
        ("launches", found.launches, piece["launches"]),
        ("MB", found.megabytes, _at(piece["megabytes"], found.tokens)),
        ("MB without products", found.megabytes_beside_products, _at(piece["megabytes_beside_products"], found.tokens)),
        ("registers per thread", found.registers_max, kernel["registers"]),
        ("bytes spilled per thread", found.spill_bytes, kernel["spill_bytes"]),
        ("elements read by a grid of one", found.elements_of_one_block, kernel["elements_of_one_block"]),
        ("kernels that read back what they wrote", found.reading_back, kernel["reading_back"]),
    ]
    for what, value, limit in held:
        if value > limit:
            yield f"{found.arch} {found.piece}: {value:,.0f} {what}, the budget is {limit:,.0f}"


def broken_by_own_kernel(found: Instructions, limits: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each limit that one of our own kernels exceeds."""
    held = [
        ("instructions per element", found.instructions_per_element, limits["instructions_per_element"][found.kernel]),
        ("bytes spilled per thread", found.spill_bytes, 0),
    ]
    for what, value, limit in held:
        if value > limit:
            yield f"{found.arch} {found.kernel}: {value:,g} {what}, the budget is {limit:,g}"


def _at(megabytes: dict[str, float], tokens: int) -> float:
    """Return a limit that depends on the batch size."""
    return megabytes["fixed"] + megabytes.get("per_1000_tokens", 0) * tokens / 1000
