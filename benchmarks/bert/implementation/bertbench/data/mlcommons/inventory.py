"""Match a folder's files with MLCommons' published files, and find the expected MD5 of each."""

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertbench.common.printable import printable
from bertbench.data.formats.tfrecord import begins_as_tfrecord
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.md5_lists import Expected, Md5List, Sums, read_lists
from bertbench.data.mlcommons.published import Published
from bertbench.data.mlcommons.scan import CannotReadError, Entry, open_entry, scan


@dataclass(frozen=True)
class Item:
    """An entry of the folder, and the published file that its name and place claim, if any."""

    entry: Entry
    published: Published | None
    expected: Expected | None


@dataclass(frozen=True)
class Inventory:
    """The whole folder."""

    items: tuple[Item, ...]
    lists: tuple[Md5List, ...]
    disputes: tuple[tuple[str, str], ...]
    """Lists that contradict MLCommons, another list or themselves: path and contradiction."""

    def to_hash(self) -> list[Item]:
        """Return the files to read: those with a known sum, and possible published files or copies."""
        regular = [item for item in self.items if item.entry.kind is None and item.entry.bytes]
        seen = Counter(item.entry.bytes for item in regular)
        claimed = {item.entry.bytes for item in regular if item.published is not None}
        sizes = {file.bytes for file in table.FILES} | {size for size in claimed if seen[size] > 1}
        return [item for item in regular if _worth_hashing(item, item.entry.bytes in sizes)]


def take_inventory(folder: Path, ignored: Path) -> Inventory:
    """List `folder`, except the file `ignored`. Raises DataError if it can't be listed."""
    entries = [entry for entry in scan(folder) if (folder / entry.path).absolute() != ignored.absolute()]
    lists = read_lists(folder, entries)
    sums = Sums(lists)
    by_name: dict[str, list[Published]] = {}
    for file in table.FILES:
        by_name.setdefault(file.name, []).append(file)
    items = []
    disputes = [(one.path, f"gives two MD5 for {printable(name)}") for one in lists for name in one.contradictions]
    for entry in entries:
        published = _claimed(folder, entry, by_name.get(entry.name, []))
        expected = list(_expectations(entry, published, sums))
        disputes += [
            (other.source, f"says MD5 {other.md5} for {printable(entry.path)}, {expected[0].source} {expected[0].md5}")
            for other in expected[1:]
            if other.md5 != expected[0].md5
        ]
        items.append(Item(entry, published, expected[0] if expected else None))
    return Inventory(tuple(items), tuple(lists), tuple(disputes))


def _worth_hashing(item: Item, size_is_known: bool) -> bool:
    size = item.published.bytes if item.published else None
    if size is not None and size != item.entry.bytes:
        return False  # truncated or too long: a sum adds nothing
    return item.expected is not None or size_is_known


def _claimed(folder: Path, entry: Entry, candidates: Sequence[Published]) -> Published | None:
    """Return the published file of this name; if two have it, choose by content, size or place."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    by_group = {file.group: file for file in candidates}
    if "tfrecord" in by_group:
        return by_group["tfrecord" if _is_tfrecord(folder, entry) else "text"]
    by_size = [file for file in candidates if file.bytes == entry.bytes]
    above = posixpath.dirname(entry.path).lower()
    by_place = [file for file in candidates if file.group in above]
    larger = sorted((file for file in candidates if (file.bytes or 0) > entry.bytes), key=lambda file: file.bytes or 0)
    return [*by_size, *by_place, *larger, *candidates][0]


def _is_tfrecord(folder: Path, entry: Entry) -> bool:
    if entry.kind is not None:
        return False
    try:
        with open_entry(folder, entry) as stream:
            return begins_as_tfrecord(stream.read(12))
    except CannotReadError:
        return False


def _expectations(entry: Entry, published: Published | None, sums: Sums) -> Iterator[Expected]:
    """Yield all known MD5 of a file, those of MLCommons' documents first."""
    if published is not None and published.md5 is not None:
        yield Expected(published.md5, "MLCommons")
    listed = sums.of_path(entry.path)
    if not listed and published is not None and published.group == "text":
        listed = sums.of_name(entry.name)
    yield from listed
