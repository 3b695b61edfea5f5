"""Choose what the check's parts run on: every GPU of the machine at sizes that keep it busy, or a CPU in small.

On a CPU a part shows that its own code works, so that its first run on a GPU doesn't fail for a typing error.
"""

import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from bertbench.model.shape import SHAPES, BertShape

TINY = BertShape(512, 16, 2, 2, 32, 48, hidden_dropout=0.0, attention_dropout=0.0)
"""Widths are multiples of 16, as products in fp8 need."""

Row = dict[str, Any]
"""One result: plain values, for JSON; `holds` is its verdict."""


class Unfit(Exception):  # noqa: N818 - not an error
    """The reason, in words, why a part doesn't run on this machine."""


class Stand(NamedTuple):
    """Where and how large a part runs."""

    device: str
    gpus: int
    shape: BertShape
    """Without dropout, so that losses can be compared."""
    batch: int
    """Samples of one rank in one step."""
    steps: int
    """Steps of a comparison."""

    @property
    def ranks(self) -> list[int]:
        """Return the numbers of ranks to try: one, and all GPUs; two on a CPU."""
        most = self.gpus if self.device == "cuda" else 2
        return sorted({1, most})


def stand() -> Stand:
    """Return the largest stand that this machine allows."""
    if not torch.cuda.is_available():
        return Stand("cpu", 0, TINY, 6, 3)
    dropless = replace(SHAPES["small"], hidden_dropout=0.0, attention_dropout=0.0)
    return Stand("cuda", torch.cuda.device_count(), dropless, 32, 6)


def print_row(row: Row) -> None:
    """Print a result at once, one line of JSON: what was measured before a kill is kept."""
    print(json.dumps(row), flush=True)


def attempt(choice: str, work: Callable[[], object]) -> None:
    """Do the work, which says its rows; if it fails, say so instead and where on stderr, and go on with the next."""
    try:
        work()
    except Unfit:
        raise
    except Exception as error:  # noqa: BLE001 - anything may fail in code that never ran on this machine
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        print_row({"choice": choice, "holds": False, "error": f"{type(error).__name__}: {lines[-1]}"})
