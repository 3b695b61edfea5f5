"""`bertbench data verify`: find missing, truncated, altered, doubled and foreign files in a download of MLCommons'.

It compares sizes first, then the MD5 of files of the right size. A text part needs an MD5, published or in a list
beside it; TFRecords only have published sizes.
"""

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.formats.tfrecord import begins_as_tfrecord
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.listing import CannotReadError, Entry, blocks, listing
from bertbench.data.mlcommons.published import Group, Published

State = Literal[
    "right", "missing", "truncated", "altered", "doubled", "misnamed", "unverified", "unreadable", "foreign"
]  # fmt: skip

_LIST_NAME = re.compile(r"(?:\.md5|\.md5sums?|md5(?:sums?)?\.txt|md5sums?)\Z", re.IGNORECASE)
_NOT_A_LIST = "eval.md5"  # published: the MD5 of each held-out article, without names
_LINE = re.compile(r"^(?:([0-9a-fA-F]{32})[ \t]+\*?(.+?)|MD5 \((.+)\) = ([0-9a-fA-F]{32}))\r?$", re.MULTILINE)
_UNDISTURBING = ("License.txt", "LICENSE.txt")
_TEXT_GLOB = "part-*-of-00500"  # as docs/data.md gives it to `data prepare`
_AGAIN = "run the download again: it resumes where the file ends"
_ANEW = "remove it and run the download again, which keeps files that are long enough"
_MADE = "make it again from text with MLCommons' reference"
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

    def judge(self, state: State, problem: bool, detail: str, remedy: str = "") -> None:
        """Set state and the words for it."""
        self.state, self.problem, self.detail, self.remedy = state, problem, detail, remedy


Right = dict[tuple[Group | None, str | None], str]
"""Path of the right file of each published group and name."""


def examine(folder: Path, progress: Progress) -> list[Finding]:
    """Return a finding for each file of `folder` and each missing one. Raises DataError if it can't be listed."""
    entries = listing(folder)
    listed = dict(_listed(folder, filter(_is_list, reversed(entries))))  # of two lists, the upper one counts
    by_name: dict[str, list[Published]] = {}
    for file in table.FILES:
        by_name.setdefault(file.name, []).append(file)
    found = [
        (entry, _expected(entry, _claimed(folder, entry, by_name.get(entry.name, ())), listed))
        for entry in entries
        if not _is_list(entry) and entry.name not in _UNDISTURBING
    ]
    _add_sums(folder, found, progress)
    findings = [finding for _, finding in found]
    right: Right = {}
    holders: dict[str, list[str]] = {}
    for finding in findings:
        expected = finding.expected_md5 or finding.expected_bytes
        if finding.name and expected and expected in (finding.md5, finding.bytes):
            right.setdefault((finding.group, finding.name), finding.path)
        if finding.name and finding.md5:
            holders.setdefault(finding.md5, []).append(finding.path)
    for finding in findings:
        same = (path for path in holders.get(finding.md5 or "", ()) if path != finding.path)
        (_judge if finding.name else _judge_stranger)(finding, next(same, None), right)
    return [*findings, *_missing(findings), *_total_of_tfrecords(findings)]


def _is_list(entry: Entry) -> bool:
    return entry.name != _NOT_A_LIST and _LIST_NAME.search(entry.name) is not None


def _listed(folder: Path, lists: Iterable[Entry]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield path and name, each with MD5 and list, of the files in lists of md5sum or BSD's md5."""
    for entry in lists:
        with suppress(CannotReadError):
            content = next(blocks(folder, entry), b"").decode("utf-8-sig", "surrogateescape")
            for line in _LINE.finditer(content):
                where = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), line[2] or line[3]))
                known = (line[1] or line[4]).lower(), printable(entry.path)
                yield from ((where, known), (f"/{posixpath.basename(where)}", known))


def _expected(entry: Entry, published: Published | None, listed: dict[str, tuple[str, str]]) -> Finding:
    """Return the finding of a file before it is read: the published file that it claims to be, and its MD5.

    A text part may be listed from anywhere, as MLCommons' older list is one folder above the text.
    """
    finding = Finding(printable(entry.path), bytes=entry.bytes, detail=entry.kind)
    known = listed.get(entry.path)
    if published:
        finding.name, finding.group, finding.expected_bytes = published.name, published.group, published.bytes
        if published.md5:
            known = published.md5, "MLCommons"
        elif published.group == "text":
            known = known or listed.get(f"/{entry.name}")

    if known:
        finding.expected_md5, finding.checked_by = known
    return finding


def _claimed(folder: Path, entry: Entry, candidates: Sequence[Published]) -> Published | None:
    """Return the published file of this name; if two have it, choose by content, size or place."""
    is_tfrecord = False
    if any(file.group == "tfrecord" for file in candidates):
        with suppress(CannotReadError):
            is_tfrecord = begins_as_tfrecord(next(blocks(folder, entry), b"")[:12])

    def unlike(file: Published) -> tuple[bool, bool, bool]:
        return (file.group == "tfrecord") != is_tfrecord, file.bytes != entry.bytes, file.group not in entry.path

    return min(candidates, key=unlike, default=None)


def _add_sums(folder: Path, found: Sequence[tuple[Entry, Finding]], progress: Progress) -> None:
    """Add the MD5 of files with a known sum, and of possible published files or copies."""
    sizes = {file.bytes for file in table.FILES}
    seen = Counter(entry.bytes for entry, _ in found)
    sizes |= {entry.bytes for entry, finding in found if finding.name and seen[entry.bytes] > 1}
    wanted = [
        (entry, finding)
        for entry, finding in found
        if entry.bytes
        and finding.expected_bytes in (None, entry.bytes)
        and (finding.expected_md5 or entry.bytes in sizes)
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
        except CannotReadError as error:
            finding.detail = str(error)


def _judge(finding: Finding, twin: str | None, right: Right) -> None:
    """Judge a file of a published name, given another such file of its content, and the right file of each name."""
    size, expected, by_name = finding.bytes, finding.expected_bytes, right.get((finding.group, finding.name))
    again, afresh = (_MADE, _MADE) if finding.group == "tfrecord" else (_AGAIN, _ANEW)
    if by_name == finding.path:
        finding.judge("right", False, "")
    elif by_name:
        finding.judge("doubled" if twin else "foreign", False, f"{by_name} is right", "remove this one")
    elif finding.detail or size is None:
        finding.judge("unreadable", True, finding.detail, "make it readable, or get it again")
    elif size < (expected or 1):
        detail = f"found {size:,} bytes, expected {f'{expected:,}' if expected else 'more'}"
        finding.judge("truncated", True, detail, again)
    elif expected and size > expected:
        finding.judge("altered", True, f"found {size:,} bytes, expected {expected:,}", afresh)
    elif finding.expected_md5:
        detail = f"found MD5 {finding.md5}, expected {finding.expected_md5} ({finding.checked_by})"
        finding.judge("altered", True, detail, afresh)
    elif twin:
        finding.judge("doubled", True, f"the same content as {twin}", afresh)
    else:
        needed = finding.group == "text"
        finding.judge("unverified", needed, "no MD5 is published for it", _LIST if needed else "")


def _judge_stranger(finding: Finding, twin: str | None, right: Right) -> None:
    """Judge a file whose name isn't published."""
    known = next((file for file in table.FILES if finding.md5 and file.md5 == finding.md5), None)
    if known and (known.group, known.name) not in right:
        finding.name, finding.group = known.name, known.group
        finding.judge("misnamed", True, f"is {known.name}", f"rename it to {known.name}")
    elif fnmatchcase(posixpath.basename(finding.path), _TEXT_GLOB):
        detail = f"no published file, but {_TEXT_GLOB} would match it"
        finding.judge("foreign", True, detail, "move it elsewhere")
    elif twin:
        finding.judge("doubled", False, f"the same content as {twin}", "remove it")
    else:
        finding.judge("foreign", False, finding.detail or "no file that MLCommons publishes for BERT")


def _missing(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the needed files that are missing; only one checkpoint is needed, the one with more of its files here."""
    there = {(finding.group, finding.name) for finding in findings}
    needed = [file for file in table.FILES if file.needed]
    begun = Counter(file.group for file in needed if (file.group, file.name) in there)
    unwanted = "tf1" if begun["tf2"] > begun["tf1"] else "tf2"
    for file in needed:
        if file.group != unwanted and (file.group, file.name) not in there:
            yield Finding(
                file.name,
                file.name,
                file.group,
                "missing",
                True,
                remedy="download it",
                expected_bytes=file.bytes,
                expected_md5=file.md5,
            )


def _total_of_tfrecords(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a finding if all 500 TFRecords of the training text have another than their published total size."""
    parts = {file.name for file in table.FILES if file.group == "tfrecord" and file.name.startswith("part-")}
    sizes = {finding.name: finding.bytes or 0 for finding in findings if finding.group == "tfrecord"}
    total, expected = sum(sizes.get(name, 0) for name in parts), table.ALL_TFRECORD_PARTS_BYTES
    if parts <= sizes.keys() and total != expected:
        detail = f"found {total:,} bytes in all, expected {expected:,}"
        yield Finding("all 500 TFRecords", None, "tfrecord", "altered", True, detail, "make them again")
