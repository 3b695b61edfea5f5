"""`bertbench data verify`: find missing, truncated, altered, doubled and foreign files in a download of MLCommons'.

It compares sizes first, then the MD5 of files of the right size. A text part needs an MD5, published or in a list
beside it.
"""

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from bertbench.common.errors import system_reason
from bertbench.common.progress import Progress
from bertbench.common.system_faults import remedy
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.listing import Entry, blocks, listing
from bertbench.data.mlcommons.published import Group, PublishedFile
from compliance.read.record import printable

State = Literal["right", "missing", "truncated", "altered", "doubled", "unverified", "unreadable", "foreign"]

_LIST_NAME = re.compile(r"(?:\.md5|\.md5sums?|md5(?:sums?)?\.txt|md5sums?)\Z", re.IGNORECASE)
_NOT_A_LIST = "eval.md5"  # published: the MD5 of each held-out article, without names
_LINE = re.compile(r"^([0-9a-fA-F]{32})[ \t]+\*?(.+?)\r?$", re.MULTILINE)
_TEXT_GLOB = "part-*-of-00500"  # as docs/data.md gives it to `data prepare`
_AGAIN = "run the download again: it resumes where the file ends"
_ANEW = "remove it and run the download again, which keeps files that are long enough"
_LIST = "put the .md5 list that the downloader writes beside its files into this folder"


@dataclass
class Finding:
    """One file: there, or missing."""

    path: str
    """Relative to the folder and printable; the published name if the file is missing."""
    name: str | None = None
    """The published name that it has or should have."""
    group: Group | None = None
    state: State = "foreign"
    problem: bool = False
    """Whether it is needed and missing, or there and wrong."""
    detail: str = ""
    remedy: str = ""
    bytes: int | None = None
    expected_bytes: int | None = None
    md5: str | None = None
    expected_md5: str | None = None
    checked_by: str | None = None
    """What gives the expected MD5: MLCommons, or a list."""


Verdict = tuple[State, bool, str, str]
"""State, problem, detail and remedy of a file."""


def examine(folder: Path, progress: Progress) -> list[Finding]:
    """Return a finding for each file of `folder` and each missing one. Raises DataError if it can't be listed."""
    entries = listing(folder)
    unread: list[Finding] = []
    listed = dict(_listed(folder, filter(_is_list, reversed(entries)), unread))  # of two lists, the upper one counts
    found = [(entry, _expected(entry, listed)) for entry in entries if not _is_list(entry)]
    _add_sums(folder, found, progress)
    findings = [finding for _, finding in found]
    right: dict[tuple[Group | None, str | None], str] = {}
    holders: dict[str, list[str]] = {}
    for finding in findings:
        if finding.name and finding.md5:
            holders.setdefault(finding.md5, []).append(finding.path)
            if finding.md5 == finding.expected_md5:
                right.setdefault((finding.group, finding.name), finding.path)
    for finding in findings:
        twin = next((path for path in holders.get(finding.md5 or "", ()) if path != finding.path), None)
        by_name = right.get((finding.group, finding.name))
        verdict = _of_published(finding, twin, by_name) if finding.name else _of_stranger(finding, twin)
        finding.state, finding.problem, finding.detail, finding.remedy = verdict
    return [*findings, *unread, *_missing(findings)]


def _is_list(entry: Entry) -> bool:
    return entry.name != _NOT_A_LIST and _LIST_NAME.search(entry.name) is not None


def _listed(folder: Path, lists: Iterable[Entry], unread: list[Finding]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield path and name, each with MD5 and list, of the files in lists of md5sum; add lists that can't be read."""
    for entry in lists:
        content, reason = b"", entry.kind
        if entry.bytes is not None:
            try:
                content = next(blocks(folder, entry), b"")
            except OSError as error:
                reason = system_reason(error)
        if reason:
            unread.append(Finding(printable(entry.path), None, None, "unreadable", True, reason, "make it readable"))
        for line in _LINE.finditer(content.decode("utf-8-sig", "surrogateescape")):
            where = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), line[2]))
            known = line[1].lower(), printable(entry.path)
            yield from ((where, known), (f"/{posixpath.basename(where)}", known))


def _expected(entry: Entry, listed: dict[str, tuple[str, str]]) -> Finding:
    """Return the finding of a file before it is read: the published file that it claims to be, and its MD5.

    A text part may be listed from anywhere, as MLCommons' older list is one folder above the text.
    """
    finding = Finding(printable(entry.path), bytes=entry.bytes, detail=entry.kind)
    if published := _claimed(entry):
        finding.name, finding.group, finding.expected_bytes = published.name, published.group, published.bytes
        known = (published.md5, "MLCommons") if published.md5 else listed.get(entry.path, listed.get(f"/{entry.name}"))
        finding.expected_md5, finding.checked_by = known or (None, None)
    return finding


def _claimed(entry: Entry) -> PublishedFile | None:
    """Return the published file of this name; if two have it, choose by size or place."""
    candidates = (file for file in table.FILES if file.name == entry.name)
    return min(candidates, key=lambda file: (file.bytes != entry.bytes, file.group not in entry.path), default=None)


def _add_sums(folder: Path, found: Sequence[tuple[Entry, Finding]], progress: Progress) -> None:
    """Add the MD5 of published files and of their possible copies."""
    sizes = {entry.bytes for entry, finding in found if finding.name and entry.bytes}
    wanted = [
        (entry, finding)
        for entry, finding in found
        if entry.bytes in sizes and finding.expected_bytes in (None, entry.bytes)
    ]
    total, done = sum(entry.bytes or 0 for entry, _ in wanted), 0
    for entry, finding in wanted:
        digest = hashlib.md5(usedforsecurity=False)
        try:
            for block in blocks(folder, entry):
                digest.update(block)
                done += len(block)
                progress.update(done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB: {finding.path}")
            finding.md5 = digest.hexdigest()
        except OSError as error:
            finding.detail, finding.remedy = system_reason(error), remedy(error, "")


def _of_published(finding: Finding, twin: str | None, by_name: str | None) -> Verdict:
    """Judge a file of a published name, given another such file of its content, and the right file of its name."""
    size, expected = finding.bytes, finding.expected_bytes
    problem, mending = True, _ANEW
    state: State = "altered"
    if by_name:
        state, problem, detail, mending = "foreign", False, f"{by_name} is right", "remove this one"
        if by_name == finding.path:
            state, detail, mending = "right", "", ""
        elif twin:
            state = "doubled"
    elif finding.detail or size is None:
        state, detail = "unreadable", finding.detail
        mending = finding.remedy or "make it readable, or get it again"
    elif size < (expected or 1):
        state, mending = "truncated", _AGAIN
        detail = f"found {size:,} bytes, expected {f'{expected:,}' if expected else 'more'}"
    elif expected and size > expected:
        detail = f"found {size:,} bytes, expected {expected:,}"
    elif finding.expected_md5:
        detail = f"found MD5 {finding.md5}, expected {finding.expected_md5} ({finding.checked_by})"
    elif twin:
        state, detail = "doubled", f"the same content as {twin}"
    else:
        state, detail, mending = "unverified", "no MD5 is published for it", _LIST
    return state, problem, detail, mending


def _of_stranger(finding: Finding, twin: str | None) -> Verdict:
    """Judge a file whose name isn't published."""
    if fnmatchcase(posixpath.basename(finding.path), _TEXT_GLOB):
        return "foreign", True, f"no published file, but {_TEXT_GLOB} would match it", "move it elsewhere"
    if twin:
        return "doubled", False, f"the same content as {twin}", "remove it"
    return "foreign", False, finding.detail or "no file that MLCommons publishes for BERT", ""


def _missing(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the needed files that are missing; only one checkpoint is needed, the one with more of its files here."""
    there = {(finding.group, finding.name) for finding in findings}
    needed = [file for file in table.FILES if file.needed]
    begun = Counter(file.group for file in needed if (file.group, file.name) in there)
    unwanted = "tf1" if begun["tf2"] > begun["tf1"] else "tf2"
    for file in needed:
        if file.group != unwanted and (file.group, file.name) not in there:
            finding = Finding(file.name, file.name, file.group, "missing", True, "", "download it")
            finding.expected_bytes, finding.expected_md5 = file.bytes, file.md5
            yield finding
