"""Draw the page of `gpu_check.sh`: each part's status and results, as tables and one chart."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertbench.report.charts import Axis, Series, lines
from bertbench.report.page import listing, page, panels, paragraph, section, table, toned

_TONES = {"held": "good", "failed": "bad", "not reached": "soft"}


def check_page(report: Mapping[str, Any]) -> str:
    """Return the whole page."""
    machine, parts = report["machine"], report["parts"]
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    ran = f"{gpus}; torch {machine['torch']}, CUDA {machine['cuda'] or 'none'}, Python {machine['python']}"
    verdict = "No part failed." if report["passed"] else "At least one part failed."
    ends = [
        f"{toned(part['status'], _TONES[part['status']])} {_plain(part['name'])}, {part['seconds']:,.1f} s: "
        f"{_plain(part['shows'])}" + (f" ({_plain(part['reason'])})" if part["reason"] else "")
        for part in parts
    ]
    return page(
        "What a GPU shows of bertbench",
        section("Outcome", paragraph(ran), paragraph(verdict, "good" if report["passed"] else "bad"), listing(ends)),
        *(section(part["name"], *_found(part["rows"])) for part in parts if part["rows"]),
    )


def _plain(text: str) -> str:
    return toned(text)


def _found(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a part's rows as HTML: one table of single values, then a table or a chart of each list in a row."""
    charts = [_losses(row["runs"]) for row in rows if "runs" in row]
    within = [row["found"] if isinstance(row.get("found"), dict) else row for row in rows]
    tables = [_rows(value, key) for row in within for key, value in row.items() if _is_rows(value)]
    single = [row for row in within if not all(isinstance(value, list) for value in row.values())]
    return [*charts, *([_rows(single)] if single else []), *tables]


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _rows(rows: Sequence[Any], caption: str = "") -> str:
    heads = dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, list))
    return table(list(heads), [[_cell(row.get(head)) for head in heads] for row in rows], caption)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_cell, value)) or "none"
    return "" if value is None else str(value)


def _losses(runs: Sequence[Mapping[str, Any]]) -> str:
    series = [
        Series(run["choice"], [(float(step), loss) for step, loss in enumerate(run["losses"], 1)]) for run in runs
    ]
    return panels(lines("Loss", series, Axis("step"), Axis("loss")))
