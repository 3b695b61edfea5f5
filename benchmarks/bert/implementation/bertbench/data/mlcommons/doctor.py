"""`bertbench data verify`: find missing, truncated, altered, doubled and foreign files in a download of MLCommons'.

It compares sizes first, then the MD5 of files of the right size. A text part needs an MD5, published or in a list
beside it; TFRecords only have published sizes.
"""

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import NamedTuple

from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.formats.tfrecord import begins_as_tfrecord
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.expected import Md5Lists
from bertbench.data.mlcommons.findings import Finding, Item, seen_together
from bertbench.data.mlcommons.published import Group, Published
from bertbench.data.mlcommons.record import Record
from bertbench.data.mlcommons.scan import FOLDER, CannotReadError, Entry, md5_of, open_entry, scan

STATE_NAME = ".bertbench-doctor.json"
_UNDISTURBING = {"License.txt", "LICENSE.txt"}
_CHECKPOINTS: tuple[Group, ...] = ("tf1", "tf2")  # one of them is enough


class Diagnosis(NamedTuple):
    """All findings."""

    findings: list[Finding]
    read: int
    """Files read now; an earlier check read the rest."""
    remembered: int

    @property
    def problems(self) -> list[Finding]:
        """Return the findings that a user must mend: needed and missing, or there and wrong."""
        return [finding for finding in self.findings if finding.problem]


def examine(folder: Path, state: Path, progress: Progress) -> Diagnosis:
    """Check `folder`, and remember the MD5 in the file `state`. Raises DataError if it can't be listed."""
    entries = [entry for entry in scan(folder) if (folder / entry.path).absolute() != state.absolute()]
    lists = Md5Lists(folder, entries)
    by_name: dict[str, list[Published]] = {}
    for file in table.FILES:
        by_name.setdefault(file.name, []).append(file)
    items, disputes = [], []
    for entry in entries:
        published = _claimed(folder, entry, by_name.get(entry.name, []))
        known = lists.of(entry, published)
        items.append(Item(entry, published, known[0] if known else None))
        for other in known[1:]:
            if other.md5 != known[0].md5:
                detail = f"says MD5 {other.md5} for {entry.path}, {known[0].source} {known[0].md5}"
                path, detail = printable(other.source), printable(detail)
                disputes.append(Finding(path, None, "altered", True, detail, "get the list again"))
    sums, remembered = _sums(folder, items, Record(state, progress), progress)
    findings = seen_together(
        [
            replace(item, md5=sums.get(item.entry.path))
            for item in items
            if item.published or _matters(item.entry, lists)
        ]
    )
    findings += [*_missing(findings), *_total_of_tfrecords(findings), *disputes]
    read = sum(isinstance(md5, str) for md5 in sums.values()) - remembered
    return Diagnosis(findings, read, remembered)


def _matters(entry: Entry, lists: Md5Lists) -> bool:
    return entry.kind != FOLDER and entry.name not in _UNDISTURBING and entry.path not in lists.paths


def _claimed(folder: Path, entry: Entry, candidates: Sequence[Published]) -> Published | None:
    """Return the published file of this name; if two have it, choose by content, size or place."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    by_group = {file.group: file for file in candidates}
    if "tfrecord" in by_group:
        return by_group["tfrecord" if _is_tfrecord(folder, entry) else "text"]
    above, found = posixpath.dirname(entry.path).lower(), entry.bytes

    def unlike(file: Published) -> tuple[bool, bool, bool, int]:
        size = file.bytes or 0
        return size != found, file.group not in above, size <= found, size

    return min(candidates, key=unlike)


def _is_tfrecord(folder: Path, entry: Entry) -> bool:
    if entry.kind is not None:
        return False
    try:
        with open_entry(folder, entry) as stream:
            return begins_as_tfrecord(stream.read(12))
    except CannotReadError:
        return False


def _sums(
    folder: Path, items: Sequence[Item], record: Record, progress: Progress
) -> tuple[dict[str, str | CannotReadError], int]:
    """Return the MD5 of each file whose content matters, or why it can't be read; and how many were remembered."""
    entries = list(_to_hash(items))
    sums: dict[str, str | CannotReadError] = {
        entry.path: md5 for entry in entries if (md5 := record.md5(entry)) is not None
    }
    remembered = len(sums)
    if remembered:
        progress.message(f"{remembered:,} files were checked before and have not changed since")
    waiting = [entry for entry in entries if entry.path not in sums]
    total, done = sum(entry.bytes for entry in waiting), 0
    for entry in waiting:

        def read(count: int, name: str = printable(entry.path)) -> None:
            nonlocal done
            done += count
            progress.update(done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB: {name}")

        began_ns = time_ns()
        try:
            md5 = sums[entry.path] = md5_of(folder, entry, read)
        except CannotReadError as error:
            sums[entry.path] = error
        else:
            record.add(entry, md5, began_ns)
    return sums, remembered


def _to_hash(items: Sequence[Item]) -> Iterator[Entry]:
    """Yield the files to read: those with a known sum, and possible published files or copies."""
    regular = [item for item in items if item.entry.kind is None and item.entry.bytes]
    seen = Counter(item.entry.bytes for item in regular)
    sizes = {file.bytes for file in table.FILES}
    sizes |= {item.entry.bytes for item in regular if item.published and seen[item.entry.bytes] > 1}
    for item in regular:
        wanted = item.published.bytes if item.published else None
        if wanted in (None, item.entry.bytes) and (item.expected or item.entry.bytes in sizes):
            yield item.entry


def _missing(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield needed files that are missing; of the two checkpoints, the one that was begun, else TensorFlow 1's."""
    there = {(finding.group, finding.name) for finding in findings}
    missing = [file for file in table.FILES if file.needed and (file.group, file.name) not in there]
    lacking = {file.group for file in missing}
    begun = [group for group in _CHECKPOINTS if any(group == found for found, _ in there)] or _CHECKPOINTS
    wanted = () if any(group not in lacking for group in begun) else begun[:1]
    for file in missing:
        if file.group not in _CHECKPOINTS or file.group in wanted:
            known = Finding(file.name, file.name, "missing", True, remedy="download it", group=file.group)
            yield replace(known, expected_bytes=file.bytes, expected_md5=file.md5)


def _total_of_tfrecords(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Judge the 500 TFRecords of the training text together, by their published total size."""
    parts = {file.name for file in table.FILES if file.group == "tfrecord" and file.name.startswith("part-")}
    sizes = {finding.name: finding.bytes or 0 for finding in findings if finding.group == "tfrecord"}
    if parts <= sizes.keys():
        total, expected = sum(sizes[name] for name in parts), table.ALL_TFRECORD_PARTS_BYTES
        found = Finding("all 500 TFRecords", None, "right", False, group="tfrecord", bytes=total)
        found = replace(found, expected_bytes=expected, checked_by="MLCommons, its size")
        detail = f"found {total:,} bytes in all, expected {expected:,}"
        yield found if total == expected else found.wrong("altered", detail, "make them again")
