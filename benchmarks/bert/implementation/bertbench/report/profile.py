"""profile.json, which `bertbench train --profile` leaves beside its log, as a chart."""

import json
from pathlib import Path

from bertbench.report.charts import Axis, Bar, bars
from compliance.run import number

_MOST_PARTS = 30


def chart(log: Path) -> str:
    """Where the time of a step went; nothing if the run wasn't profiled, or the file is not sound."""
    try:
        parts = json.loads((log.with_suffix("") / "profile.json").read_text(encoding="utf-8"))["parts_ms"]
        found = {str(name): ms for name, value in parts.items() if (ms := number(value)) is not None}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    step = sum(found.values()) or 1.0
    rows = [Bar(name, {"time": ms}, f"{ms / step:.1%}") for name, ms in list(found.items())[:_MOST_PARTS]]
    return bars(f"Where a step's time goes: {log.stem}", rows, Axis("ms, rank 0"))
