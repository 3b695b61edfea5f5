"""Draw the course of a run: the balance of one step, the trace of a pipeline's step.

`picture.py` writes the pictures to docs/. `python docs/site/trace.py` records the run that the trace shows.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertbench.balance.cost import BERT_LARGE
from bertbench.balance.plan import Balance, efficiency
from bertbench.balance.simulate import drawn_index, planner
from docs.site.svg import COLOURS, Picture, picture

_RESULTS = Path(__file__).parents[2] / "results"
_STYLE = (
    "svg { background: #fff; font: 12px sans-serif; fill: #333 } .name { font-weight: bold } .end { text-anchor: end } "
    f".forward {{ fill: {COLOURS[0]} }} .backward {{ fill: {COLOURS[1]} }} .idle {{ fill: #ddd }} "
    f".number {{ fill: #fff; text-anchor: middle }} .sample {{ fill: {COLOURS[0]}; stroke: #fff; stroke-width: 0.8 }} "
    f".mean {{ stroke: {COLOURS[1]}; stroke-width: 1.5; stroke-dasharray: 4 3 }}"
)

_GPUS = 8
_SAMPLES_PER_GPU = 16
_BAR_HEIGHT = 16
_BAR_PITCH = 21
_TRACE_WIDTH = 720
_PHASES = ("forward", "backward")


def step_balance() -> Picture:
    """Return the load of each GPU in one step, with and without load balancing; each block is a sample."""
    index = drawn_index(100_000, seed=1)
    shapes = []
    for number, (method, words) in enumerate((("none", "as drawn"), ("planned", "by cost"))):
        variant = planner(index, Balance(method, BERT_LARGE), _GPUS, _SAMPLES_PER_GPU, _GPUS, seed=1)
        assigned = variant.plan(0).assigned
        costs_S = BERT_LARGE.of_length[variant.lengths(assigned)]
        loads_R = assigned.sums(costs_S)
        if number == 0:
            scale = 310 / float(loads_R.max())
        left = 372.0 * number
        title = f"{words} ({method}): load efficiency {efficiency(loads_R):.3f}"
        shapes.append(f'<text x="{left:.1f}" y="18" class="name">{title}</text>')
        for rank, costs in enumerate(np.split(costs_S, assigned.bounds_R1[1:-1])):
            shapes.extend(_bar(rank, np.sort(costs)[::-1], left, scale))
        mean = left + 46 + scale * float(loads_R.mean())
        bottom = 30 + _BAR_PITCH * _GPUS
        shapes.append(f'<line x1="{mean:.1f}" y1="26" x2="{mean:.1f}" y2="{bottom}" class="mean"/>')
    description = (
        f"The load of {_GPUS} GPUs in one simulated step of {_GPUS * _SAMPLES_PER_GPU} samples: uneven as drawn, "
        "equal when assigned by cost"
    )
    return picture(description, 728, 38 + _BAR_PITCH * _GPUS, _STYLE, shapes)


def _bar(rank: int, costs: np.ndarray, left: float, scale: float) -> Iterator[str]:
    """Yield the samples of a GPU, one block each, most expensive first."""
    top = 30 + _BAR_PITCH * rank
    yield f'<text x="{left:.1f}" y="{top + 12}">GPU {rank}</text>'
    begin = left + 46
    for width in (scale * costs).tolist():
        yield (f'<rect x="{begin:.1f}" y="{top}" width="{width:.1f}" height="{_BAR_HEIGHT}" class="sample"/>')
        begin += width


def trace() -> Picture:
    """Return one step of a pipeline with two ranks: passes are in colour, waiting is grey."""
    record = json.loads((_RESULTS / "trace.json").read_text())
    spans = [span for span in _spans(record) if span["kind"] in _PHASES]
    begin = min(span["began"] for span in spans)
    length = max(span["ended"] for span in spans) - begin
    left = 50
    scale = (_TRACE_WIDTH - left) / length
    ranks = record["pipeline"]
    shapes = []
    for rank in range(ranks):
        top = 34 + 34 * rank
        shapes.append(f'<text x="0" y="{top + 17}">rank {rank}</text>')
        shapes.append(f'<rect x="{left}" y="{top}" width="{_TRACE_WIDTH - left}" height="26" class="idle"/>')
    for span in spans:
        x = left + scale * (span["began"] - begin)
        top = 34 + 34 * span["rank"]
        width = scale * (span["ended"] - span["began"])
        shapes.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="26" class="{span["kind"]}"/>')
        shapes.append(f'<text x="{x + width / 2:.1f}" y="{top + 17}" class="number">{1 + span["microbatch"]}</text>')
    for number, (look, words) in enumerate((*((phase, phase) for phase in _PHASES), ("idle", "waiting"))):
        shapes.append(f'<rect x="{left + 110 * number}" y="8" width="12" height="12" class="{look}"/>')
        shapes.append(f'<text x="{left + 18 + 110 * number}" y="18">{words}</text>')
    bottom = 34 + 34 * ranks
    shapes.append(f'<text x="{left}" y="{bottom + 14}">0 ms</text>')
    shapes.append(f'<text x="{_TRACE_WIDTH}" y="{bottom + 14}" class="end">{length:.0f} ms</text>')
    description = (
        f"A step of a pipeline of {ranks} CPU ranks with {record['microbatches']} microbatches: forward and backward "
        "passes, and waiting between them"
    )
    return picture(description, _TRACE_WIDTH, bottom + 22, _STYLE, shapes)


def _spans(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans of the record's first step, with names for their fields."""
    names = ("rank", "kind", "step", "stage", "microbatch", "began", "ended")
    rows = [dict(zip(names, row, strict=True)) for row in record["spans"]]
    first = rows[0]["step"]
    return (row for row in rows if row["step"] == first)
