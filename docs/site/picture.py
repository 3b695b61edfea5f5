"""Draw docs/demo.svg: accuracy against time of the demo's recorded runs, beside the fastest Trainer's on that machine.

Reads results/cpu_demo and results/bench/*/train.json; `python docs/site/picture.py` writes the file.
"""

import json
from pathlib import Path

from bertbench.report.charts import Axis, scatter
from compliance.read.log import read_events
from compliance.read.run import RunFacts

_REPOSITORY = Path(__file__).parents[2]
_PICTURE = _REPOSITORY / "docs" / "demo.svg"
_TARGET = 0.4
_COLOURS = ("#0b7a75", "#b3541e")
_STYLE = (
    "svg { background: #fff; font: 11px sans-serif; fill: #333 } circle { r: 1.5px } .end { text-anchor: end } "
    ".middle { text-anchor: middle } .grid { stroke: #ddd } .level { stroke: #333; stroke-dasharray: 4 4 } "
    + " ".join(f".fill-{number} {{ fill: {colour} }}" for number, colour in enumerate(_COLOURS))
)


def fastest_rival(record: Path) -> tuple[str, list[tuple[float, ...]]]:
    """Return the evaluations of the Trainer's row that reached the target first."""
    content = json.loads(record.read_text())
    reached = {result["name"]: result["seconds_to_target"] for result in content["results"] if result["reached"]}
    name = min((name for name in reached if "Trainer" in name and " our " not in name), key=reached.__getitem__)
    return name, [tuple(point) for course in content["courses"][name] for point in course]


def current() -> str:
    """Return the picture of what is recorded today: a point an evaluation, of all runs."""
    runs = _REPOSITORY / "results" / "cpu_demo" / "bert"
    processor = json.loads((runs / "result_0" / "run.json").read_text())["processor"]
    courses = [RunFacts(read_events(log)).course for log in sorted(runs.glob("result_*.txt"))]
    series = {f"bertbench, {len(courses)} runs": [point for course in courses for point in course]}
    for path in (_REPOSITORY / "results" / "bench").glob("*/train.json"):
        if json.loads(path.read_text())["processor"] == processor:
            name, points = fastest_rival(path)
            series[name] = points
    seconds = Axis(f"seconds since the clock started; {processor}, two cores")
    figure = scatter("Accuracy of the demo", series, seconds, Axis("accuracy", low=0.0), ("target", _TARGET))
    drawing = figure[figure.index("<svg") : figure.index("</svg>")]
    names = [
        f'<text x="396" y="{176 + 15 * number}" class="end fill-{number}">{name}</text>'
        for number, name in enumerate(series)
    ]
    opened = drawing.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    return f"{opened}<style>{_STYLE}</style>{''.join(names)}</svg>\n"


if __name__ == "__main__":
    _PICTURE.write_text(current())
