"""The texts that the code can print: every string in it that is no docstring, with `X` where a value goes."""

import ast
from pathlib import Path
from typing import NamedTuple

from bertbench.common.paths import PACKAGE


class Text(NamedTuple):
    """A text and where it stands."""

    text: str
    file: Path
    line: int


class _Texts(ast.NodeVisitor):
    """Collects the texts of a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: list[Text] = []
        self.visit(ast.parse(file.read_text(encoding="utf-8")))

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found.append(Text(node.value, self.file, node.lineno))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = (str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        self.found.append(Text("".join(parts), self.file, node.lineno))


def texts() -> list[Text]:
    return [text for path in sorted(PACKAGE.rglob("*.py")) for text in _Texts(path).found]
