"""Show any record of a bench or study as one page: texts as paragraphs, lists of rows as tables."""

from collections.abc import Mapping
from typing import Any

from bertbench.report.page import html_table, page, paragraph, section


def record_page(title: str, record: Mapping[str, Any]) -> str:
    """Return one self-contained HTML file with a section for each field."""
    shown = {name: value for name, value in record.items() if value or value is False}
    return page(title, *(section(name, *_shown(value)) for name, value in shown.items()))


def _shown(value: Any, caption: str = "") -> list[str]:
    """Return a value as HTML: for a list of rows, one table of their plain values, then the values nested in each.

    A column without any value is left out.
    """
    items = value if isinstance(value, list | tuple) else [value]
    if not _has_rows(items):
        return [paragraph(_cell(item)) for item in items]
    plain_values: dict[str, list[str]] = {}  # in the order in which rows first have them
    has_rows: set[str] = set()
    within: list[str] = []
    for row in items:
        for name, inner in row.items():
            if _has_rows(inner):
                has_rows.add(name)
                within += _shown(inner, f"{next(iter(row.values()))}: {name}")
            else:
                plain_values.setdefault(name, []).append(_cell(inner))
    heads = [name for name, values in plain_values.items() if any(values) and name not in has_rows]
    if not heads:
        return within
    cells = []
    for row in items:
        cells.append([_cell(row.get(head)) for head in heads])
    return [html_table(heads, cells, caption), *within]


def _has_rows(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_rows, value.values()))
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], dict)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return "" if value is None else str(value)
