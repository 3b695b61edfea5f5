"""Judge each file of a download: first alone, then beside the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from bertbench.common.printable import printable
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.expected import Expected
from bertbench.data.mlcommons.published import Group, Published
from bertbench.data.mlcommons.scan import CannotReadError, Entry

State = Literal[
    "right", "missing", "truncated", "altered", "doubled", "misnamed", "unverified", "unreadable", "foreign"
]  # fmt: skip
_TEXT_GLOB = "part-*-of-00500"  # as docs/data.md gives it to `data prepare`
_AGAIN = "run the download again: it resumes where the file ends"
_ANEW = "remove it and run the download again, which keeps files that are long enough"
_MADE = "make it again with `bertbench data export --layout tfrecord`"
_LIST = "put the .md5 list that the downloader writes beside its files into this folder"


@dataclass(frozen=True)
class Finding:
    """One file: there, or missing."""

    path: str
    """Relative to the folder and printable; the published name if the file is missing."""
    name: str | None
    """The published name that it has or should have."""
    state: State
    problem: bool
    """Whether it is needed and missing, or there and wrong."""
    detail: str = ""
    remedy: str = ""
    group: Group | None = None
    bytes: int | None = None
    expected_bytes: int | None = None
    md5: str | None = None
    expected_md5: str | None = None
    checked_by: str | None = None

    def wrong(self, state: State, detail: str, remedy: str) -> "Finding":
        """Return the same finding as a problem; TFRecords aren't downloaded, so their remedy is to make them."""
        remedy = _MADE if self.group == "tfrecord" and remedy in (_AGAIN, _ANEW) else remedy
        return replace(self, state=state, problem=True, detail=detail, remedy=remedy)


@dataclass(frozen=True)
class Item:
    """An entry of the folder, and the published file that its name and place claim, if any."""

    entry: Entry
    published: Published | None
    expected: Expected | None
    md5: str | CannotReadError | None = None
    """What reading it gave, if it was read."""

    def judged(self) -> Finding:
        """Return the finding for the file, seen alone."""
        entry, published, md5 = self.entry, self.published, self.md5
        finding = Finding(
            path=printable(entry.path),
            name=published.name if published else None,
            state="foreign",
            problem=False,
            group=published.group if published else None,
            bytes=None if entry.kind else entry.bytes,
            expected_bytes=published.bytes if published else None,
            md5=md5 if isinstance(md5, str) else None,
            expected_md5=self.expected.md5 if self.expected else None,
        )
        return _unreadable(finding, entry.kind, md5) or _wrong_size(finding, entry.bytes) or self._by_sum(finding)

    def _by_sum(self, finding: Finding) -> Finding:
        if self.expected is None:
            return _unlisted(finding, self.entry.name, self.published)
        source = printable(self.expected.source)
        if self.md5 == self.expected.md5:
            return replace(finding, state="right", checked_by=source)
        return finding.wrong("altered", f"found MD5 {self.md5}, expected {self.expected.md5} ({source})", _ANEW)


def seen_together(items: Sequence[Item]) -> list[Finding]:
    """Return the findings, corrected by comparing files: copies, misnamed files, spare ones."""
    findings = [item.judged() for item in items]
    right: dict[Published, str] = {}
    holders: dict[str, list[str]] = {}
    for item, finding in zip(items, findings, strict=True):
        if item.published is not None:
            holders.setdefault(finding.md5 or "-", []).append(finding.path)
            if finding.state == "right":
                right.setdefault(item.published, finding.path)
    together = []
    for item, finding in zip(items, findings, strict=True):
        same = [path for path in holders.get(finding.md5 or "", []) if path != finding.path]
        if item.published is not None:
            together.append(_beside_others(finding, same, right.get(item.published, finding.path)))
        else:
            together.append(_stranger_beside_others(finding, same, right))
    return together


def _unreadable(finding: Finding, kind: str | None, md5: str | CannotReadError | None) -> Finding | None:
    if isinstance(md5, CannotReadError):
        return finding.wrong("unreadable", str(md5), "make it readable and check again")
    if kind and finding.name is not None:
        return finding.wrong("unreadable", f"is {kind}, expected a file", _ANEW)
    return replace(finding, detail=f"{kind}; not read") if kind else None


def _wrong_size(finding: Finding, found: int) -> Finding | None:
    """Return a finding for a wrong size, or None; of 494 text parts, only the empty are known to be wrong."""
    expected = finding.expected_bytes
    detail = f"found {found:,} bytes, expected " + ("more" if expected is None else f"{expected:,}")
    if finding.name is not None and found < (expected or 1):
        return finding.wrong("truncated", detail, _AGAIN)
    if expected is not None and found > expected:
        return finding.wrong("altered", detail, _ANEW)
    return None


def _unlisted(finding: Finding, name: str, published: Published | None) -> Finding:
    """Return the finding for a file without a known MD5."""
    if published is not None and published.bytes is not None:
        return replace(finding, state="right", checked_by="MLCommons, its size")
    if published is not None:
        unverified = finding.wrong("unverified", "no MD5 is published for it", _LIST)
        return unverified if published.needed else replace(unverified, problem=False, remedy="")
    if fnmatchcase(name, _TEXT_GLOB):
        return finding.wrong("foreign", f"no published file, but {_TEXT_GLOB} would match it", "move it elsewhere")
    return replace(finding, detail="no file that MLCommons publishes for BERT")


def _beside_others(finding: Finding, same: Sequence[str], right: str) -> Finding:
    """Correct a finding by the claimed files of the same content, and the path of the right file of its name."""
    if right != finding.path and finding.state == "right":
        return replace(finding, state="doubled", detail=f"the same content as {right}", remedy="remove one")
    if right != finding.path:
        detail = f"{finding.detail}; {right} is right"
        return replace(finding, state="foreign", problem=False, detail=detail, remedy="remove it")
    if same and finding.state == "unverified":
        return finding.wrong("doubled", f"the same content as {same[0]}", _ANEW)
    if same and finding.state == "altered":
        return replace(finding, detail=f"{finding.detail}; it has the content of {same[0]}")
    return finding


def _stranger_beside_others(finding: Finding, same: Sequence[str], right: Mapping[Published, str]) -> Finding:
    if finding.md5 is None:
        return finding
    known = next((file for file in table.FILES if file.md5 == finding.md5), None)
    if known is not None and known not in right:
        finding = replace(finding, name=known.name, group=known.group)
        return finding.wrong("misnamed", f"is {known.name}", f"rename it to {known.name}")
    if same:
        remedy = finding.remedy or "remove it"
        return replace(finding, state="doubled", detail=f"the same content as {same[0]}", remedy=remedy)
    return finding
