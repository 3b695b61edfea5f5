"""Draw the pictures on the pages by matplotlib: `python docs/site/pictures.py` writes docs/*.svg.

- demo.svg: accuracy against time of bertbench and of the fastest Trainer, from the record that README's table shows
- balance.svg: simulated load efficiency of 1,024 GPUs, by method
- step.svg: the load of each GPU in one simulated step, with and without load balancing
- trace.svg: a recorded step of a pipeline; `python docs/site/trace.py` records it
- packages.svg: the packages of bertbench by layer, from pyproject.toml and the packages' own docstrings

A page describes each picture with the words that its function returns, and a test compares the two.
"""

import ast
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bertbench.balance.cost import BERT_LARGE
from bertbench.balance.plan import Balance, efficiency
from bertbench.balance.simulate import drawn_index, planner
from bertbench.runs.figures import COLOURS, STYLE, pipeline_step, svg_text
from bertbench.runs.trace_format import PASSES
from bertbench.runs.trace_reader import PassBar

_REPOSITORY = Path(__file__).parents[2]
_RESULTS = _REPOSITORY / "results"
_PACKAGE = _REPOSITORY / "benchmarks" / "bert" / "implementation" / "bertbench"
_TARGET = 0.4
_BALANCE = "bertbench balance --gpus 1024 --batch 2,4,8,16,48 --methods "
_GPUS = 8
_SAMPLES_PER_GPU = 16
_DRAWING_WIDTH = 7.5  # inches
_LINE_HEIGHT = 0.155
_LETTER_WIDTH = 0.066
_GAP = 0.08


class Picture(NamedTuple):
    """A picture, and the words with which a page describes it."""

    svg: str
    description: str


def demo() -> Picture:
    """Return all evaluations as points, from the record in README's table: the newest record of `time-to-target`."""
    records = (json.loads(path.read_text()) for path in (_RESULTS / "bench").glob("*/train.json"))
    record = max(records, key=lambda one: one["measured"])
    courses = record["courses"]
    runs = len(courses["bertbench"])
    figure, axes = _axes(4.6, 3.4)
    for name in ("bertbench", _fastest_trainer(record)):
        points = np.array([point for course in courses[name] for point in course])
        axes.scatter(points[:, 0], points[:, 1], s=5, label=textwrap.fill(name, 60))
    axes.axhline(_TARGET, color="black", linestyle="dashed", linewidth=1)
    axes.text(0, _TARGET + 0.005, "target", weight="bold")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"seconds; {record['processor']}, two cores")
    axes.set_ylabel("masked-LM accuracy")
    figure.legend(loc="outside lower left", frameon=False, fontsize=8)
    description = (
        f"Accuracy against time of {runs} runs each of bertbench and of transformers' Trainer, on "
        f"{record['processor']}, {record['measured']}"
    )
    return Picture(svg_text(figure), description)


def _fastest_trainer(record: Mapping[str, Any]) -> str:
    """Return the name of the fastest row of the Trainer with one of its own optimizers."""
    reached = {result["name"]: result["seconds_to_target"] for result in record["results"] if result["reached"]}
    return min((name for name in reached if "Trainer" in name and " our " not in name), key=reached.__getitem__)


def balance() -> Picture:
    """Return the simulated efficiency by samples per GPU, with a line for each method."""
    records = json.loads((_RESULTS / "simulated" / "balance.json").read_text())
    rows = next(found for command, found in records.items() if command.startswith(_BALANCE))
    figure, axes = _axes(5.4, 4.2)
    for method in dict.fromkeys(row["method"] for row in rows):
        of_method = [row for row in rows if row["method"] == method]
        batches = [row["local_batch"] for row in of_method]
        axes.plot(batches, [row["load_efficiency"] for row in of_method], marker=".", label=method)
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.set_ylim(top=1)
    axes.set_xlabel("samples per GPU")
    axes.set_ylabel("load efficiency: mean load / largest load")
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=8)
    description = "Simulated load efficiency of 1,024 GPUs against samples per GPU, by method"
    return Picture(svg_text(figure), description)


def step_balance() -> Picture:
    """Return the load of each GPU in one step, with and without load balancing; each block is a sample."""
    index = drawn_index(100_000, seed=1)
    figure = Figure(figsize=(_DRAWING_WIDTH, 2.6))
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, method, words in ((left, "none", "as drawn"), (right, "planned", "by cost")):
        variant = planner(index, Balance(method, BERT_LARGE), _GPUS, _SAMPLES_PER_GPU, _GPUS, seed=1)
        assigned = variant.plan(0).assigned
        costs_S = BERT_LARGE.of_length[variant.lengths(assigned)]
        loads_R = assigned.sums(costs_S)
        for rank, costs in enumerate(np.split(costs_S, assigned.bounds_R1[1:-1])):
            _draw_samples(axes, rank, np.sort(costs)[::-1])
        axes.axvline(float(loads_R.mean()), color=COLOURS[1], linestyle="dashed")
        axes.set_title(f"{words} ({method}): load efficiency {efficiency(loads_R):.3f}", size=10)
        axes.set_yticks(range(_GPUS), [f"GPU {rank}" for rank in range(_GPUS)])
        axes.set_xticks([])
        axes.grid(visible=False)
    left.invert_yaxis()
    description = (
        f"The load of {_GPUS} GPUs in one simulated step of {_GPUS * _SAMPLES_PER_GPU} samples: uneven as drawn, "
        "equal when assigned by cost"
    )
    return Picture(svg_text(figure), description)


def _draw_samples(axes: Axes, rank: int, costs: np.ndarray) -> None:
    """Draw the samples of a GPU as a row of blocks."""
    begins = np.cumsum(costs) - costs
    axes.barh(np.full(len(costs), rank), costs, left=begins, height=0.8, color=COLOURS[0], edgecolor="white",
              linewidth=0.6)  # fmt: skip


def trace() -> Picture:
    """Return one step of a pipeline with two ranks."""
    record = json.loads((_RESULTS / "trace.json").read_text())
    description = (
        f"A step of a pipeline of {record['pipeline']} CPU ranks with {record['microbatches']} microbatches: forward "
        "and backward passes, and waiting between them"
    )
    bars = [PassBar(*row) for row in record["spans"] if row[1] in PASSES]
    return Picture(pipeline_step(bars), description)


def packages() -> Picture:
    """Return a box for each package of bertbench, in rows; a package imports only from rows below its own."""
    rows = [row.split(" | ") for row in _layers() if not row.startswith("__")]
    purposes = {package: _purpose(package) for row in rows for package in row}
    boxes = []
    top = 0.0
    for row in rows:
        width = (_DRAWING_WIDTH - _GAP * (len(row) - 1)) / len(row)
        texts = [textwrap.wrap(purposes[package], int(width / _LETTER_WIDTH)) for package in row]
        height = _LINE_HEIGHT * (1.8 + max(map(len, texts)))
        for number, (package, text) in enumerate(zip(row, texts, strict=True)):
            boxes.append((package, text, number * (width + _GAP), top, width, height))
        top += height + _GAP
    figure = Figure(figsize=(_DRAWING_WIDTH, top), layout="none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.02, _DRAWING_WIDTH + 0.02), ylim=(top - _GAP + 0.02, -0.02))
    axes.axis("off")
    for package, text, left, above, width, height in boxes:
        axes.add_patch(Rectangle((left, above), width, height, facecolor="#eef3f8", edgecolor=COLOURS[0]))
        axes.text(left + _GAP, above + _GAP, f"{package}/", size=9, weight="bold", va="top", family="monospace")
        axes.text(left + _GAP, above + _GAP + _LINE_HEIGHT, "\n".join(text), size=8, va="top")
    description = f"The {len(boxes)} packages of bertbench in {len(rows)} layers, from cli down to common"
    return Picture(svg_text(figure), description)


def _layers() -> list[str]:
    """Return the layers of import-linter's first contract, highest first; ` | ` separates packages in one layer."""
    settings = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers: list[str] = contracts[0]["layers"]
    return layers


def _purpose(package: str) -> str:
    """Return the first sentence of a package's docstring."""
    source = (_PACKAGE / package / "__init__.py").read_text()
    text = ast.get_docstring(ast.parse(source)) or ""
    return re.split(r"[.](?:\s|$)", text, maxsplit=1)[0].replace("\n", " ")


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of this size in inches."""
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


PICTURES: dict[str, Callable[[], Picture]] = {
    "demo.svg": demo,
    "balance.svg": balance,
    "step.svg": step_balance,
    "trace.svg": trace,
    "packages.svg": packages,
}
"""The function that draws each file in docs/."""


def drawn(file: str) -> Picture:
    """Return a picture of docs/."""
    with rc_context(STYLE):
        return PICTURES[file]()


if __name__ == "__main__":
    for name in PICTURES:
        (_REPOSITORY / "docs" / name).write_text(drawn(name).svg)
