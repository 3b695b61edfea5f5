"""Draw the page of `gpu_check.sh`: each part's status and results, as tables and one chart."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertbench.report.charts import Axis, Series, lines
from bertbench.report.page import listing, page, panels, paragraph, section, table, toned

_TONES = {"passed": "good", "failed": "bad", "skipped": "soft"}
_LISTS = (list, dict)


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
        *(section(part["name"], *_found(part["name"], report[part["name"]])) for part in parts),
    )


def _plain(text: str) -> str:
    return toned(text)


def _found(name: str, found: Any) -> list[str]:
    """Return a part's results as HTML: a table for each list of rows, text for the rest."""
    if not isinstance(found, _LISTS):
        return [paragraph(str(found), "soft")]
    if isinstance(found, list):
        return [_rows(found)]
    chart = [_losses(found["runs"])] if name == "convergence" and "runs" in found else []
    single = [(key, _cell(value)) for key, value in found.items() if not _is_rows(value)]
    tables = [_rows(value, key) for key, value in found.items() if _is_rows(value)]
    return chart + ([table(("", "found"), single)] if single else []) + tables


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _rows(rows: Sequence[Any], caption: str = "") -> str:
    if not rows or not isinstance(rows[0], dict):
        return paragraph(_cell(rows))
    heads = [key for key in rows[0] if not isinstance(rows[0][key], list)]
    return table(heads, [[_cell(row.get(head)) for head in heads] for row in rows], caption)


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
