"""Find the expected MD5 of each file: MLCommons', else one in a list beside the files, of md5sum or BSD's md5."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertbench.data.mlcommons.published import Published
from bertbench.data.mlcommons.scan import CannotReadError, Entry, open_entry

_LIST_NAME = re.compile(r"(?:\.md5|\.md5sums?|md5(?:sums?)?\.txt|md5sums?)\Z", re.IGNORECASE)
_NOT_A_LIST = "eval.md5"  # published: the MD5 of each held-out article, without names
_LINE = re.compile(r"([0-9a-fA-F]{32})[ \t]+\*?(.+)|MD5 \((.+)\) = ([0-9a-fA-F]{32})")
_LARGEST = 1 << 20  # bytes; a list of all published files has 30 kB


class Expected(NamedTuple):
    """The expected MD5 of a file, and its source."""

    md5: str
    source: str
    """MLCommons, or the path of a list."""


class Md5Lists:
    """All lists among the entries of a folder; unreadable ones are left out, and lines that are no sums."""

    def __init__(self, folder: Path, entries: Sequence[Entry]) -> None:
        self.paths: set[str] = set()
        """Lists that name a file."""
        self._sums: dict[str, list[Expected]] = {}
        for entry in entries:
            if entry.kind is None and _LIST_NAME.search(entry.name) and entry.name != _NOT_A_LIST:
                try:
                    with open_entry(folder, entry) as stream:
                        self._add(entry.path, stream.read(_LARGEST).decode("utf-8-sig", "surrogateescape"))
                except CannotReadError:
                    continue

    def of(self, entry: Entry, published: Published | None) -> list[Expected]:
        """Return all known MD5 of a file, MLCommons' first.

        A list is for the files that it names; a text part may be named from anywhere, as MLCommons' older list is one
        folder above the text.
        """
        known = [Expected(published.md5, "MLCommons")] if published and published.md5 else []
        by_name = f"/{entry.name}" if published and published.group == "text" else ""
        return known + (self._sums.get(entry.path) or self._sums.get(by_name, []))

    def _add(self, path: str, content: str) -> None:
        for name, md5 in _parsed(content):
            self.paths.add(path)
            where = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            for key in (where, f"/{posixpath.basename(where)}"):
                self._sums.setdefault(key, []).append(Expected(md5, path))


def _parsed(content: str) -> Iterator[tuple[str, str]]:
    for line in content.split("\n"):
        if matched := _LINE.fullmatch(line.removesuffix("\r")):
            yield matched[2] or matched[3], (matched[1] or matched[4]).lower()
