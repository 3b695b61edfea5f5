"""Draw the pictures on the pages from the records in results/: `python docs/site/picture.py` writes docs/*.svg.

- demo.svg: accuracy against time of bertbench and of the fastest Trainer, from the record that README's table shows
- balance.svg: simulated load efficiency of 1,024 GPUs, by method
- scaling.svg: efficiency over ranks, by `bertbench lab scaling`
- packages.svg: the packages of bertbench by layer, from pyproject.toml and the packages' own docstrings
- step.svg, trace.svg: the course of a run, drawn by run_pictures.py

A test finds pictures that are out of date, and pages that describe a picture in other words.
"""

import ast
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bertbench.report.charts import Axis, Series, lines, scatter

_REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(_REPOSITORY))  # neither lab/ nor this folder is installed

from docs.site import run_pictures  # noqa: E402
from docs.site.svg import COLOURS, Picture, picture  # noqa: E402

_RESULTS = _REPOSITORY / "results"
_PACKAGE = _REPOSITORY / "benchmarks" / "bert" / "implementation" / "bertbench"
_TARGET = 0.4
_BALANCE = "bertbench balance --gpus 1024 --batch 2,4,8,16,48 --methods "
_STYLE = (
    "svg { background: #fff; font: 11px sans-serif; fill: #333 } circle { r: 1.5px } .end { text-anchor: end } "
    ".middle { text-anchor: middle } .grid { stroke: #ddd } .level { stroke: #333; stroke-dasharray: 4 4 } "
    "[class^=line] { fill: none; stroke-width: 1.8 } "
    + " ".join(
        f".fill-{number} {{ fill: {colour} }} .line-{number} {{ stroke: {colour} }}"
        for number, colour in enumerate(COLOURS)
    )
)

_CHART_SIZE = (420, 250)  # of report.charts
_DRAWING_WIDTH = 720
_GAP = 8
_LINE_HEIGHT = 14
_LETTER_WIDTH = 6.2  # a little more than the mean width of 11 px letters, so that lines stay inside their box
_BOX_STYLE = (
    "svg { background: #fff; font: 11px sans-serif; fill: #333 } rect { fill: #eef6f5; stroke: #0b7a75 } "
    ".name { font: bold 12px monospace; fill: #0b5a56 }"
)


def demo() -> Picture:
    """Return all evaluations as points, from the record in README's table: the newest record of `time-to-target`."""
    records = (json.loads(path.read_text()) for path in (_RESULTS / "bench").glob("*/train.json"))
    record = max(records, key=lambda one: one["measured"])
    courses = record["courses"]
    names = ["bertbench", _fastest_trainer(record)]
    runs = len(courses["bertbench"])
    description = (
        f"Accuracy against time of {runs} runs each of bertbench and of transformers' Trainer, on "
        f"{record['processor']}, {record['measured']}"
    )
    series = {name: [(x, y) for course in courses[name] for x, y in course] for name in names}
    seconds = Axis(f"seconds; {record['processor']}, two cores", low=0.0)
    level = ("target", _TARGET)
    figure = scatter(description, series, seconds, Axis("masked-LM accuracy", low=0.0), level)
    return Picture(_alone(figure, series), description)


def balance() -> Picture:
    """Return the simulated efficiency by samples per GPU, with a line for each method."""
    records = json.loads((_RESULTS / "simulated" / "balance.json").read_text())
    rows = next(found for command, found in records.items() if command.startswith(_BALANCE))
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        series.setdefault(row["method"], []).append((row["batch"], row["efficiency"]))
    description = "Simulated load efficiency of 1,024 GPUs against samples per GPU, by method"
    efficiency = Axis("load efficiency: mean load / largest load", high=1.0)
    figure = lines(description, series, Axis("samples per GPU", log2=True), efficiency)
    return Picture(_alone(figure, series), description)


def scaling() -> Picture:
    """Return the efficiency by number of ranks, with a line for each series that has a common course.

    The measured rows differ in network and clipping, MLPerf's published rows in submitter and batch: they are points.
    """
    from lab.bench.scaling import scalings  # noqa: PLC0415 - needs the path above

    measured = "measured on two CPU ranks"
    published = "published MLPerf results"
    series: dict[str, list[tuple[float, float]]] = {}
    for row in scalings():
        if row.evidence == "computed":
            name = f"computed, {row.series}"
        elif row.evidence == "measured":
            name = measured
        else:
            name = f"published, {row.name}" if row.name else published
        series.setdefault(name, []).append((row.ranks, row.efficiency))
    description = "Efficiency against ranks: two CPU ranks measured, DGX A100s computed and published, V100s published"
    efficiency = Axis("rate of a rank / rate of a rank in the smallest run", low=0.0, high=1.0)
    figure = lines(description, series, Axis("ranks", log2=True), efficiency, points_only=(measured, published))
    return Picture(_alone(figure, series), description)


def packages() -> Picture:
    """Return a box for each package of bertbench, in rows; a package imports only from rows below its own."""
    rows = [row.split(" | ") for row in _layers() if not row.startswith("__")]
    drawn = []
    top = 8
    for row in rows:
        width = (_DRAWING_WIDTH - _GAP * (len(row) - 1)) / len(row)
        texts = [textwrap.wrap(_purpose(package), int(width / _LETTER_WIDTH)) for package in row]
        height = 22 + _LINE_HEIGHT * max(map(len, texts))
        for number, (package, text) in enumerate(zip(row, texts, strict=True)):
            drawn.append(_box(package, text, number * (width + _GAP), top, width, height))
        top += height + _GAP
    description = f"The {sum(map(len, rows))} packages of bertbench in {len(rows)} layers, from cli down to common"
    return picture(description, _DRAWING_WIDTH, top, _BOX_STYLE, drawn)


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


def _box(package: str, text: list[str], left: float, top: float, width: float, height: float) -> str:
    """Return a package as a box with its name and its purpose."""
    lines = "".join(
        f'<text x="{left + 8:.1f}" y="{top + 30 + _LINE_HEIGHT * number:.1f}">{escape(line)}</text>'
        for number, line in enumerate(text)
    )
    name = f'<text class="name" x="{left + 8:.1f}" y="{top + 16:.1f}">{package}/</text>'
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4"/>{name}{lines}'


def _fastest_trainer(record: Mapping[str, Any]) -> str:
    """Return the name of the fastest row of the Trainer with one of its own optimizers."""
    reached = {result["name"]: result["seconds_to_target"] for result in record["results"] if result["reached"]}
    return min((name for name in reached if "Trainer" in name and " our " not in name), key=reached.__getitem__)


def _alone(figure: str, series: Series) -> str:
    """Return a chart from a page as a separate file, with the names of the series below it."""
    drawing = figure[figure.index("<svg") : figure.index("</svg>")]
    width, height = _CHART_SIZE
    names = [
        f'<circle cx="12" cy="{height + _LINE_HEIGHT * number + 3}" style="r:3.5px" class="fill-{number}"/>'
        f'<text x="22" y="{height + _LINE_HEIGHT * number + 7}" class="fill-{number}">{escape(name)}</text>'
        for number, name in enumerate(series)
    ]
    opened = drawing.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    taller = opened.replace(f"0 0 {width} {height}", f"0 0 {width} {height + _LINE_HEIGHT * len(series) + 6}")
    return f"{taller}<style>{_STYLE}</style>{''.join(names)}</svg>\n"


PICTURES: dict[str, Callable[[], Picture]] = {
    "demo.svg": demo,
    "balance.svg": balance,
    "scaling.svg": scaling,
    "packages.svg": packages,
    "step.svg": run_pictures.step_balance,
    "trace.svg": run_pictures.trace,
}
"""The function that draws each file in docs/."""


if __name__ == "__main__":
    for file, draw in PICTURES.items():
        (_REPOSITORY / "docs" / file).write_text(draw().drawn)
