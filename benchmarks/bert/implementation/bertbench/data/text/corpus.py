"""Read articles as lists of sentences, from the installed Python's documentation or from files.

This is the first step of corpus -> samples -> shards. Nothing is downloaded or kept: the default corpus is the
docstrings of the installed standard library, numpy and torch.
"""

import ast
import importlib.util
import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from pydoc_data import topics

from bertbench.common.compressed import unpacking
from bertbench.common.errors import DataError
from bertbench.common.system_faults import unreadable

Article = list[str]
"""One document: its sentences in order."""

_SKIPPED_FOLDERS = {"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "__pycache__"}
# numpy and torch document their compiled functions with strings in calls; shorter ones are messages.
_DOCUMENTING_CALL_LENGTH = 200
_RULE = re.compile(r"[-=~^*+|#_. ]+")
_PLAIN_WORD = re.compile(r"[\"'(`*]*[A-Za-z][a-z]*(?:[-'][A-Za-z]+)*[\"')`*,.;:!?]*")
_PROSE_SHARE = 0.7  # of plain words in a paragraph: keeps 6.9 of 10 MB, and drops signatures, tables and code
_PROSE_WORDS = 5
# Abbreviations whose full stop doesn't end a sentence.
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|mr|mrs|dr|prof|st|no|fig|eq|approx|resp|jr|sr|inc|ltd|u\.s)|\b[a-z])\.$", re.I
)
_LONGEST_ABBREVIATION = len("approx.")
_BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9`])")
_DOC_BLOCK = re.compile(r"^<doc\b[^>\n]*>[ \r]*\n((?:(?!</?doc\b).*\n)*)</doc>", re.MULTILINE)


def python_documentation() -> Iterator[Article]:
    """Yield the English prose in the installed Python, one document per definition, by path: over 5 MB of text."""
    roots = [Path(sysconfig.get_path("stdlib"))]
    for package in ("numpy", "torch"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise DataError(
                f"the default corpus reads the docstrings of {package}, which is not installed; "
                "run `make setup`, or give --text FILE"
            )
        roots.append(Path(spec.origin).parent)
    seen: set[str] = set()
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            # Debian's sitecustomize.py is a link into /etc, which containers may lack
            if path.is_file() and _SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts):
                yield from _articles(_definition_texts(path), seen)
    yield from _articles(([text] for _, text in sorted(topics.topics.items())), seen)


def documentation_versions() -> dict[str, str]:
    """Return the versions of what `python_documentation` reads, because another version gives another corpus."""
    return {"python": sys.version.split()[0], "numpy": version("numpy"), "torch": version("torch")}


def _articles(documents: Iterable[list[str]], seen: set[str]) -> Iterator[Article]:
    for texts in documents:
        sentences: Article = []
        for text in texts:
            for paragraph in _prose(text):
                if paragraph not in seen:  # torch repeats whole paragraphs: 0.5 MB
                    seen.add(paragraph)
                    sentences += split_sentences(paragraph)
        if sentences:
            yield sentences


def _definition_texts(path: Path) -> Iterator[list[str]]:
    """Yield one source file's documentation: a list for the module and one per top-level statement."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise DataError(unreadable(path, error, "install this Python again, or give --text FILE")) from error
    if b'"""' not in source:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # files of other Python versions
        return
    yield [ast.get_docstring(tree) or ""]
    yield from (list(_statement_texts(statement)) for statement in tree.body)


def _statement_texts(statement: ast.stmt) -> Iterator[str]:
    """Yield the docstrings, which may be empty, of a definition and of a class's members, or a call's long strings."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.get_docstring(statement) or ""
    if isinstance(statement, ast.ClassDef):
        for inner in statement.body:
            yield from _statement_texts(inner)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        for node in ast.walk(statement):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and len(text) >= _DOCUMENTING_CALL_LENGTH:
                yield text


def _prose(text: str) -> Iterator[str]:
    """Yield paragraphs that are mostly plain words, without sessions, rules, tables and signatures."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = [line.strip() for line in paragraph.partition(">>>")[0].splitlines()]
        words = [word for line in lines if not _RULE.fullmatch(line) for word in line.split()]
        plain = sum(_PLAIN_WORD.fullmatch(word) is not None for word in words)
        if len(words) >= _PROSE_WORDS and plain >= _PROSE_SHARE * len(words):
            yield " ".join(words)


def text_articles(path: Path) -> Iterator[Article]:
    """Yield articles of a text file with one sentence per line and a blank line between articles.

    Only a newline ends a line, and all carriage returns are dropped, as in TensorFlow's GFile.
    Raises DataError for a file that is missing or not UTF-8.
    """
    sentences = (line.replace("\r", "").strip() for line in _lines(path))
    yield from (list(lines) for is_article, lines in groupby(sentences, bool) if is_article)


def wiki_articles(path: Path) -> Iterator[Article]:
    """Yield articles of a WikiExtractor file: `<doc ...>`, a title line, paragraphs, `</doc>`.

    Raises DataError for a file that is missing, not UTF-8, or holds text outside of such blocks.
    """
    content = "".join(_lines(path))
    if outside := _DOC_BLOCK.sub("", content).strip():
        raise DataError(
            f"{path}: found {outside[:60]!r} outside a complete <doc> ... </doc> block; extract the file again, or "
            "give a file with one sentence per line to --text"
        )
    for block in _DOC_BLOCK.finditer(content):
        paragraphs = list(filter(str.strip, block[1].split("\n")))[1:]
        if sentences := [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph)]:
            yield sentences


def _lines(path: Path) -> Iterator[str]:
    if packed := unpacking(path):  # an archive of texts may be valid UTF-8
        raise DataError(f"{path}: {packed}")
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            yield from lines
    except OSError as error:
        raise DataError(unreadable(path, error, "give the path of a text file in UTF-8")) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error}); give the path of a text file in UTF-8") from error


def split_sentences(paragraph: str) -> list[str]:
    """Split one paragraph into sentences and collapse white space; no sentence is empty."""
    text = " ".join(paragraph.split())
    sentences: list[str] = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        # a search from the start of a long sentence at each of its full stops would take quadratic time
        ending = max(start, boundary.start() - _LONGEST_ABBREVIATION)
        if _ABBREVIATION.search(text, ending, boundary.start()):
            continue
        sentences.append(text[start : boundary.end()].strip())
        start = boundary.end()
    if text[start:]:
        sentences.append(text[start:])
    return sentences
