"""Draw docs/demo.svg: accuracy against time of the demo's recorded runs, beside the fastest Trainer's on that machine.

Reads results/cpu_demo and results/bench/*/train.json; `python docs/site/picture.py` writes the file.
"""

import json
from pathlib import Path

from compliance.log import read_events
from compliance.run import RunFacts

_REPOSITORY = Path(__file__).parents[2]
_PICTURE = _REPOSITORY / "docs" / "demo.svg"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 320, 52, 20, 34, 44
_OURS, _THEIRS, _INK, _RULE = "#0b7a75", "#b3541e", "#333333", "#dddddd"
_TARGET, _HIGHEST = 0.4, 0.45
Course = list[tuple[float, float]]


def recorded_runs(folder: Path) -> list[Course]:
    """Return (seconds since run_start, accuracy) at each evaluation of every log."""
    return [RunFacts(read_events(log)).course for log in sorted(folder.glob("result_*.txt"))]


def fastest_rival(record: Path) -> tuple[str, list[Course]]:
    """Return the name of the Trainer's row that reached the target first, and its courses."""
    content = json.loads(record.read_text())
    reached = {result["name"]: result["seconds_to_target"] for result in content["results"] if result["reached"]}
    name = min((name for name in reached if "Trainer" in name and " our " not in name), key=reached.__getitem__)
    return name, content["courses"][name]


def drawing(ours: list[Course], rivals: list[tuple[str, list[Course]]], processor: str) -> str:
    """Return the picture as SVG; `rivals` are the Trainer's name and courses, none if that machine has no record."""
    series = [(_THEIRS, *rival) for rival in rivals] + [(_OURS, f"bertbench, {len(ours)} runs", ours)]
    longest = max(course[-1][0] for *_, courses in series for course in courses)
    across = (_WIDTH - _LEFT - _RIGHT) / longest
    up = (_HEIGHT - _TOP - _BOTTOM) / _HIGHEST

    def place(seconds: float, accuracy: float) -> str:
        return f"{_LEFT + across * seconds:.1f} {_HEIGHT - _BOTTOM - up * accuracy:.1f}"

    drawn = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>']
    for tenths in range(5):
        level = tenths / 10
        drawn.append(f'<path d="M{place(0, level)}L{place(longest, level)}" stroke="{_RULE}"/>')
        x, y = place(0, level).split()
        drawn.append(f'<text x="{float(x) - 8}" y="{float(y) + 4}" text-anchor="end">{level:.1f}</text>')
    step = next(step for step in (10, 20, 30, 60, 120, 300) if longest / step <= 10)
    for seconds in range(0, int(longest) + 1, step):
        x, y = place(seconds, 0).split()
        drawn.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle">{seconds}</text>')
    drawn.append(
        f'<path d="M{place(0, _TARGET)}L{place(longest, _TARGET)}" stroke="{_INK}" stroke-dasharray="4 4"/>'
        f'<text x="{_LEFT + 6}" y="{_HEIGHT - _BOTTOM - up * _TARGET - 6:.1f}">target</text>'
    )
    for colour, _, courses in series:
        for course in courses:
            line = "L".join(place(*point) for point in course)
            drawn.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    for index, (colour, text, _) in enumerate(reversed(series)):
        x = _LEFT + index * 210
        drawn.append(
            f'<path d="M{x} 16h22" stroke="{colour}" stroke-width="3"/><text x="{x + 28}" y="20">{text}</text>'
        )
    drawn.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">seconds since the clock started; '
        f"{processor}, two cores</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="13" fill="{_INK}">\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def current() -> str:
    """Return the picture of what is recorded today."""
    runs = _REPOSITORY / "results" / "cpu_demo" / "bert"
    processor = json.loads((runs / "result_0" / "run.json").read_text())["processor"]
    rivals = [
        fastest_rival(path)
        for path in (_REPOSITORY / "results" / "bench").glob("*/train.json")
        if json.loads(path.read_text())["processor"] == processor
    ]
    return drawing(recorded_runs(runs), rivals, processor)


if __name__ == "__main__":
    _PICTURE.write_text(current())
