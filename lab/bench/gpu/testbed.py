"""Choose what the check's parts run on: every GPU of the machine at sizes that keep it busy, or a CPU at small sizes.

On a CPU, a part shows that its own code works, so that its first run on a GPU doesn't fail because of a typo.
"""

import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from bertbench.model.shape import SHAPES, BertShape

TINY = BertShape(512, 16, 2, 2, 32, 48, hidden_dropout=0.0, attention_dropout=0.0)
"""Widths are multiples of 16, which products in fp8 need."""

Row = dict[str, Any]
"""One result, as plain values for JSON; `holds` is its verdict."""


class Unfit(Exception):  # noqa: N818 - not an error
    """Raised with the reason why a part can't run on this machine."""


class Testbed(NamedTuple):
    """The devices on which a part runs, and its sizes."""

    device: str
    gpus: int
    shape: BertShape
    """A model without dropout, so that losses can be compared."""
    batch: int
    """The samples of one rank in one step."""
    steps: int
    """The steps of a comparison."""

    @property
    def ranks(self) -> list[int]:
        """Return the numbers of ranks to try: one, and as many as there are GPUs; on a CPU, one and two."""
        most = self.gpus if self.device == "cuda" else 2
        return sorted({1, most})


def testbed() -> Testbed:
    """Return the largest testbed that this machine allows."""
    if not torch.cuda.is_available():
        return Testbed("cpu", 0, TINY, 6, 3)
    dropless = replace(SHAPES["small"], hidden_dropout=0.0, attention_dropout=0.0)
    return Testbed("cuda", torch.cuda.device_count(), dropless, 32, 6)


def print_row(row: Row) -> None:
    """Print a result immediately, as one line of JSON, so that it isn't lost if the check is killed."""
    print(json.dumps(row), flush=True)


def attempt(choice: str, work: Callable[[], object]) -> None:
    """Do the work, which prints its rows. If it fails, print a row that says so, and a traceback on stderr."""
    try:
        work()
    except Unfit:
        raise
    except Exception as error:  # noqa: BLE001 - any error is possible in code that has never run on this machine
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        print_row({"choice": choice, "holds": False, "error": f"{type(error).__name__}: {lines[-1]}"})
