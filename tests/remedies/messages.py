"""The texts that the code can print: every string in it that is no docstring, with `X` where a value goes."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertbench.common.paths import PACKAGE


class Text(NamedTuple):
    """A text and where it stands."""

    text: str
    file: Path
    line: int


def texts() -> Iterator[Text]:
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
            id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        }
        for node in ast.walk(tree):
            if id(node) in docstrings | inside:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield Text(node.value, path, node.lineno)
            elif isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
                yield Text("".join(parts), path, node.lineno)
