"""The texts that the code can print: every string except docstrings, with `X` in place of values."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertbench.common.paths import PACKAGE


class Text(NamedTuple):
    """A text, and the place where it is written."""

    text: str
    file: Path
    line: int


def texts() -> Iterator[Text]:
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        apart = parts | {node.value for node in nodes if isinstance(node, ast.Expr)}  # docstrings
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                said = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
                yield Text(said, path, node.lineno)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in apart:
                yield Text(node.value, path, node.lineno)
