"""Read lists of MD5 sums in the forms of md5sum and BSD's md5, and look files up in them."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bertbench.data.mlcommons.scan import CannotReadError, Entry, open_entry

_LIST_NAME = re.compile(r"(?:\.md5|\.md5sums?|md5(?:sums?)?\.txt|md5sums?)\Z", re.IGNORECASE)
_NOT_A_LIST = "eval.md5"  # published: the MD5 of each held-out article, without names
_GNU = re.compile(r"(\\?)([0-9a-fA-F]{32})[ \t]+\*?(.+)", re.DOTALL)
_BSD = re.compile(r"MD5 \((.+)\) = ([0-9a-fA-F]{32})", re.DOTALL)
_LARGEST = 1 << 20  # bytes; a list of all published files has 30 kB
_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


@dataclass(frozen=True)
class Md5List:
    """A list that was found beside the files."""

    path: str
    sums: dict[str, str]
    """By normalised path, relative to the checked folder."""
    contradictions: tuple[str, ...]
    """Paths that the list names twice, with different sums."""


class Expected(NamedTuple):
    """The expected MD5 of a file, and its source."""

    md5: str
    source: str
    """MLCommons, or the path of a list."""


class Sums:
    """The sums of all lists, by path and by name."""

    def __init__(self, lists: Sequence[Md5List]) -> None:
        self._by_path: dict[str, list[Expected]] = {}
        self._by_name: dict[str, list[Expected]] = {}
        for one in lists:
            for path, md5 in one.sums.items():
                self._by_path.setdefault(path, []).append(Expected(md5, one.path))
                self._by_name.setdefault(posixpath.basename(path), []).append(Expected(md5, one.path))

    def of_path(self, path: str) -> list[Expected]:
        """Return the sums for exactly this file."""
        return self._by_path.get(path, [])

    def of_name(self, name: str) -> list[Expected]:
        """Return the sums for files of this name: MLCommons' older list is one folder above the text."""
        return self._by_name.get(name, [])


def read_lists(folder: Path, entries: Sequence[Entry]) -> list[Md5List]:
    """Return every list among the entries that names a file; unreadable ones are left out."""
    lists = []
    for entry in entries:
        if (
            entry.kind is None
            and entry.bytes <= _LARGEST
            and entry.name != _NOT_A_LIST
            and _LIST_NAME.search(entry.name)
        ):
            try:
                with open_entry(folder, entry) as stream:
                    content = stream.read(_LARGEST)
            except CannotReadError:
                continue
            found = parse_list(content, entry.path)
            if found.sums:
                lists.append(found)
    return lists


def parse_list(content: bytes, path: str) -> Md5List:
    """Parse the list in `content`, found at `path`; other lines, such as comments, are ignored."""
    sums: dict[str, str] = {}
    contradictions = []
    for line in content.decode("utf-8-sig", "surrogateescape").split("\n"):
        name, md5 = _parsed(line.removesuffix("\r"))
        if name is None or md5 is None:
            continue
        where = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        if sums.setdefault(where, md5) != md5:
            contradictions.append(where)
    return Md5List(path, sums, tuple(contradictions))


def _parsed(line: str) -> tuple[str | None, str | None]:
    if matched := _GNU.fullmatch(line):
        escaped, md5, name = matched.groups()
        if escaped:  # a name with a line break or a backslash
            name = re.sub(r"\\[\\nr]", lambda found: _ESCAPES[found[0]], name)
        return name, md5.lower()
    if matched := _BSD.fullmatch(line):
        return matched[1], matched[2].lower()
    return None, None
