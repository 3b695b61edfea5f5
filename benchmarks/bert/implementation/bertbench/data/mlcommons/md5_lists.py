"""Read lists of MD5 sums, as md5sum and BSD's md5 write them, and look a file up in those beside it."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertbench.data.mlcommons.scan import CannotReadError, Entry, open_entry

_LIST_NAME = re.compile(r"(?:\.md5|\.md5sums?|md5(?:sums?)?\.txt|md5sums?)\Z", re.IGNORECASE)
_NOT_A_LIST = "eval.md5"  # published: the MD5 of each held-out article, without names
_GNU = re.compile(r"(\\?)([0-9a-fA-F]{32})[ \t]+\*?(.+)", re.DOTALL)
_BSD = re.compile(r"MD5 \((.+)\) = ([0-9a-fA-F]{32})", re.DOTALL)
_LARGEST = 16 << 20  # bytes; a list of the published files has 30 kB
_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


@dataclass(frozen=True)
class Md5List:
    """A list that was found beside the files."""

    path: str
    sums: dict[str, str]
    """By normal path relative to the folder that is checked."""
    contradictions: tuple[str, ...]
    """Paths that the list names twice, with different sums."""

    def of_path(self, path: str) -> str | None:
        """The sum for exactly this file."""
        return self.sums.get(path)

    def of_name(self, name: str) -> str | None:
        """The sum for the only file of this name: MLCommons' older list is one folder above the text."""
        found = {md5 for path, md5 in self.sums.items() if posixpath.basename(path) == name}
        return found.pop() if len(found) == 1 else None


def read_lists(folder: Path, entries: Sequence[Entry]) -> list[Md5List]:
    """Every list among the entries that names a file; what can't be read is left out."""
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
    """The list in `content`, found at `path`; lines of another form, such as comments, are left out."""
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
