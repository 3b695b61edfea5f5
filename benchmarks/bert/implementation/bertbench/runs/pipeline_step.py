"""Read the first recorded step of a run's pipeline: when each rank passed which microbatch through which stage."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from compliance.read.run import as_integer, number

_KINDS = ("forward", "backward")
_MOST_BARS = 4000
_MOST_RANKS = 1000


@dataclass(frozen=True)
class PassBar:
    """A pass of a microbatch through a stage on a rank."""

    rank: int
    kind: str
    """`forward` or `backward`."""
    step: int
    stage: int
    microbatch: int
    began_ms: float
    ended_ms: float


def first_step(content: dict[str, Any]) -> list[PassBar]:
    """Return the passes of the first step in the content of pipeline.json; empty if it has none."""
    bars = list(_bars(content))
    return [bar for bar in bars if bar.step == bars[0].step][:_MOST_BARS]


def _bars(content: dict[str, Any]) -> Iterator[PassBar]:
    """Yield the passes that can be drawn; anybody may have edited the file."""
    rows = content.get("spans")
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 7 or row[1] not in _KINDS:
            continue
        rank, kind, step, stage, microbatch, began_ms, ended_ms = row
        places = [as_integer(value) for value in (rank, step, stage, microbatch)]
        times = [number(value) for value in (began_ms, ended_ms)]
        if None in places or None in times or not 0 <= rank < _MOST_RANKS:
            continue
        yield PassBar(rank, kind, step, stage, microbatch, began_ms, ended_ms)
