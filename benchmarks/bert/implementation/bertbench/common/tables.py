"""Write tables as text: aligned for a terminal, or in Markdown for a page.

Every table of the commands, the laboratory and the pages is written here; HTML is that of runs/page.py.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Return the lines of a table for a terminal, with the first `left` columns left-aligned, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = []
        for column, (text, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(text.ljust(width) if column < left else text.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def table_lines(rows: Sequence[object], columns: Mapping[str, str]) -> list[str]:
    """Return the lines of a table for a terminal, whose columns are formats of a row.

    `columns` maps a head to a format of the row, which is called 0, as in `{0.name}`. A format with a colon means a
    number. Columns before the first number are aligned to the left. A number that is None is shown as -.
    """
    forms = list(columns.values())
    left = len([*takewhile(lambda form: ":" not in form, forms)])
    cells = []
    for row in rows:
        cells.append([_cell(form, row) for form in forms])
    return aligned([*columns], cells, left)


def _cell(form: str, row: object) -> str:
    try:
        return form.format(row)
    except TypeError:  # None can't be formatted as a number
        return "-"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, without a last line break."""
    lines = []
    for row in (header, ["---"] * len(header), *rows):
        cells = [text.replace("|", "&#124;") for text in row]  # a bar would end the cell
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
