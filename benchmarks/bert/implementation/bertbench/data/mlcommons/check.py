"""`bertbench data verify`: find missing, truncated, altered, doubled and foreign files in a download from MLCommons.

It compares sizes first, then the MD5 of files of the right size. A text part needs an MD5, published or in a list that
comes with it.
"""

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple

from bertbench.common.errors import system_reason
from bertbench.common.progress import Progress
from bertbench.common.system_faults import remedy
from bertbench.data.mlcommons import published as published_files
from bertbench.data.mlcommons.listing import ListedFile, blocks, listing
from bertbench.data.mlcommons.published import Group, PublishedFile
from compliance.read.record import printable

State = Literal["right", "missing", "truncated", "altered", "doubled", "unverified", "unreadable", "foreign"]

_LIST_NAME = re.compile(r"(?:\.md5|\.md5sums?|md5(?:sums?)?\.txt|md5sums?)\Z", re.IGNORECASE)
_NOT_A_LIST = "eval.md5"  # published: the MD5 of each held-out article, without names
_LINE = re.compile(r"^([0-9a-fA-F]{32})[ \t]+\*?(.+?)\r?$", re.MULTILINE)
_TEXT_GLOB = "part-*-of-00500"  # as docs/data.md gives it to `data prepare`
_AGAIN = "run the download again: it resumes where the file ends"
_ANEW = "remove it and run the download again, which keeps files that are long enough"
_LIST = "copy the .md5 list that the downloader writes into this folder"


@dataclass
class CheckedFile:
    """One file, present or missing."""

    path: str
    """Relative to the folder and printable; the published name if the file is missing."""
    name: str | None = None
    """The published name that it has or should have."""
    group: Group | None = None
    state: State = "foreign"
    problem: bool = False
    """Whether it is needed and missing, or present and wrong."""
    detail: str = ""
    remedy: str = ""
    bytes: int | None = None
    expected_bytes: int | None = None
    md5: str | None = None
    expected_md5: str | None = None
    checked_by: str | None = None
    """Where the expected MD5 comes from: MLCommons, or a list."""


class FileVerdict(NamedTuple):
    """The result of checking a file, with the field names of CheckedFile."""

    state: State
    problem: bool
    detail: str
    remedy: str


class ListedSum(NamedTuple):
    """An MD5 from a list of md5sum, and the list's path."""

    md5: str
    checked_by: str


def examine(folder: Path, progress: Progress) -> list[CheckedFile]:
    """Return the result for each file of `folder` and each missing one. Raises DataError if it can't be listed."""
    files = listing(folder)
    lists = [file for file in files if _is_list(file)]
    others = [file for file in files if not _is_list(file)]
    listed, unread = _read_lists(folder, lists)
    checked = [_expected(file, listed) for file in others]
    _add_sums(folder, others, checked, progress)
    right: dict[tuple[Group | None, str | None], str] = {}
    holders: dict[str, list[str]] = {}
    for file in checked:
        if file.name and file.md5:
            holders.setdefault(file.md5, []).append(file.path)
            if file.md5 == file.expected_md5:
                right.setdefault((file.group, file.name), file.path)
    for file in checked:
        twin = next((path for path in holders.get(file.md5 or "", ()) if path != file.path), None)
        if file.name:
            verdict = _of_published(file, twin, right.get((file.group, file.name)))
        else:
            verdict = _of_stranger(file, twin)
        file.state = verdict.state
        file.problem = verdict.problem
        file.detail = verdict.detail
        file.remedy = verdict.remedy
    return [*checked, *unread, *_missing(checked)]


def _is_list(file: ListedFile) -> bool:
    return file.name != _NOT_A_LIST and _LIST_NAME.search(file.name) is not None


def _read_lists(folder: Path, lists: Sequence[ListedFile]) -> tuple[dict[str, ListedSum], list[CheckedFile]]:
    """Return the sums in lists of md5sum, by the path and by the name of a file, and the lists that can't be read."""
    sums: dict[str, ListedSum] = {}
    unread: list[CheckedFile] = []
    for file in reversed(lists):  # the list in the uppermost folder comes last, and counts
        content = b""
        reason = file.kind
        if file.bytes is not None:
            try:
                content = next(blocks(folder, file), b"")
            except OSError as error:
                reason = system_reason(error)
        if reason:
            unread.append(CheckedFile(printable(file.path), None, None, "unreadable", True, reason, "make it readable"))
        for line in _LINE.finditer(content.decode("utf-8-sig", "surrogateescape")):
            where = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), line[2]))
            listed = ListedSum(line[1].lower(), printable(file.path))
            sums[where] = listed
            sums[f"/{posixpath.basename(where)}"] = listed
    return sums, unread


def _expected(file: ListedFile, listed: dict[str, ListedSum]) -> CheckedFile:
    """Return what is known of a file before it is read: the published file that it claims to be, and its MD5.

    A text part may be listed in any folder, because MLCommons' older list is one folder above the text.
    """
    checked = CheckedFile(printable(file.path), bytes=file.bytes, detail=file.kind)
    claimed = _claimed(file)
    if claimed is None:
        return checked
    checked.name = claimed.name
    checked.group = claimed.group
    checked.expected_bytes = claimed.bytes
    if claimed.md5:
        checked.expected_md5 = claimed.md5
        checked.checked_by = "MLCommons"
    elif listed_sum := listed.get(file.path) or listed.get(f"/{file.name}"):
        checked.expected_md5 = listed_sum.md5
        checked.checked_by = listed_sum.checked_by
    return checked


def _claimed(file: ListedFile) -> PublishedFile | None:
    """Return the published file of this name; if two have that name, choose by size, then by folder."""
    candidates = [published for published in published_files.FILES if published.name == file.name]
    return min(
        candidates,
        key=lambda published: (published.bytes != file.bytes, published.group not in file.path),
        default=None,
    )


def _add_sums(folder: Path, files: Sequence[ListedFile], checked: Sequence[CheckedFile], progress: Progress) -> None:
    """Add the MD5 of published files and of their possible copies."""
    sizes = {result.bytes for result in checked if result.name and result.bytes}
    wanted = [
        (file, result)
        for file, result in zip(files, checked, strict=True)
        if file.bytes in sizes and result.expected_bytes in (None, file.bytes)
    ]
    total = sum(file.bytes or 0 for file, _ in wanted)
    done = 0
    for file, result in wanted:
        digest = hashlib.md5(usedforsecurity=False)
        try:
            for block in blocks(folder, file):
                digest.update(block)
                done += len(block)
                progress.update(done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB: {result.path}")
            result.md5 = digest.hexdigest()
        except OSError as error:
            result.detail = system_reason(error)
            result.remedy = remedy(error)


def _of_published(file: CheckedFile, twin: str | None, right: str | None) -> FileVerdict:
    """Judge a file with a published name.

    `twin` is another such file with the same content, and `right` the correct file of that name, if there is one.
    """
    if right == file.path:
        return FileVerdict("right", False, "", "")
    if right:
        state: State = "doubled" if twin else "foreign"
        return FileVerdict(state, False, f"{right} is correct", "remove this one")
    if file.detail or file.bytes is None:
        return FileVerdict("unreadable", True, file.detail, file.remedy or "make it readable, or download it again")
    least_bytes = file.expected_bytes or 1
    if file.bytes < least_bytes:
        expected = f"{file.expected_bytes:,}" if file.expected_bytes else "more"
        return FileVerdict("truncated", True, f"found {file.bytes:,} bytes, expected {expected}", _AGAIN)
    if file.expected_bytes and file.bytes > file.expected_bytes:
        return FileVerdict("altered", True, f"found {file.bytes:,} bytes, expected {file.expected_bytes:,}", _ANEW)
    return _of_published_size(file, twin)


def _of_published_size(file: CheckedFile, twin: str | None) -> FileVerdict:
    """Judge a file with a published name and size that isn't known to be correct."""
    if file.expected_md5:
        detail = f"found MD5 {file.md5}, expected {file.expected_md5} ({file.checked_by})"
        return FileVerdict("altered", True, detail, _ANEW)
    if twin:
        return FileVerdict("doubled", True, f"the same content as {twin}", _ANEW)
    return FileVerdict("unverified", True, "no MD5 is published for it", _LIST)


def _of_stranger(file: CheckedFile, twin: str | None) -> FileVerdict:
    """Judge a file whose name isn't published."""
    if fnmatchcase(posixpath.basename(file.path), _TEXT_GLOB):
        return FileVerdict("foreign", True, f"not a published file, but {_TEXT_GLOB} matches it", "move it elsewhere")
    if twin:
        return FileVerdict("doubled", False, f"the same content as {twin}", "remove it")
    return FileVerdict("foreign", False, file.detail or "not a file that MLCommons publishes for BERT", "")


def _missing(checked: Sequence[CheckedFile]) -> Iterator[CheckedFile]:
    """Yield the needed files that are missing. Only one checkpoint is needed: the one with more files present."""
    present = {(file.group, file.name) for file in checked}
    needed = [file for file in published_files.FILES if file.needed]
    files_of_group = Counter(file.group for file in needed if (file.group, file.name) in present)
    unwanted = "tf1" if files_of_group["tf2"] > files_of_group["tf1"] else "tf2"
    for file in needed:
        if file.group == unwanted or (file.group, file.name) in present:
            continue
        yield CheckedFile(
            path=file.name,
            name=file.name,
            group=file.group,
            state="missing",
            problem=True,
            remedy="download it",
            expected_bytes=file.bytes,
            expected_md5=file.md5,
        )
