"""Judge each file of a download: first alone, then beside the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from bertbench.common.printable import printable
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.inventory import Item
from bertbench.data.mlcommons.published import Group, Published
from bertbench.data.mlcommons.scan import CannotReadError

State = Literal[
    "right", "missing", "truncated", "altered", "doubled", "misnamed", "unverified", "unreadable", "foreign"
]  # fmt: skip
_TEXT_GLOB = "part-*-of-00500"  # as docs/data.md gives it to `data prepare`
_ARCHIVE = "results_text.tar.gz"  # archive of the text in earlier downloads
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


def judged(item: Item, md5: str | CannotReadError | None) -> Finding:
    """Return the finding for an entry, seen alone; `md5` is what reading it gave, if it was read."""
    entry, published, expected = item.entry, item.published, item.expected
    finding = Finding(
        path=printable(entry.path),
        name=published.name if published else None,
        state="foreign",
        problem=False,
        group=published.group if published else None,
        bytes=entry.bytes if entry.kind is None else None,
        expected_bytes=published.bytes if published else None,
        md5=md5 if isinstance(md5, str) else None,
        expected_md5=expected.md5 if expected else None,
    )
    if entry.kind is not None or isinstance(md5, CannotReadError):
        return _unreadable(finding, entry.kind, str(md5))
    if (wrong := _wrong_size(finding, entry.bytes)) is not None:
        return wrong
    if expected is None:
        return _unlisted(finding, entry.name, published)
    source = printable(expected.source)
    if md5 == expected.md5:
        return replace(finding, state="right", checked_by=source)
    detail = f"found MD5 {md5}, expected {expected.md5} ({source})"
    return replace(finding, state="altered", problem=True, detail=detail, remedy=_mended_by(finding, _ANEW))


def seen_together(items: Sequence[Item], findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, corrected by comparing files: copies, misnamed files, spare ones."""
    right: dict[Published, str] = {}
    holders: dict[str, list[str]] = {}
    for item, finding in zip(items, findings, strict=True):
        if item.published is not None and finding.state == "right":
            right.setdefault(item.published, finding.path)
        if item.published is not None and finding.md5 is not None:
            holders.setdefault(finding.md5, []).append(finding.path)
    by_md5 = {file.md5: file for file in table.FILES if file.md5 is not None}
    return [
        _beside_others(
            finding,
            item.published,
            [path for path in holders.get(finding.md5 or "", []) if path != finding.path],
            right,
            by_md5,
        )
        for item, finding in zip(items, findings, strict=True)
    ]


def _mended_by(finding: Finding, how: str) -> str:
    return _MADE if finding.group == "tfrecord" else how


def _unreadable(finding: Finding, kind: str | None, reason: str) -> Finding:
    if kind is None:
        remedy = "make it readable and check again"
        return replace(finding, state="unreadable", problem=True, detail=reason, remedy=remedy)
    if finding.name is None:
        return replace(finding, detail=f"{kind}; not read")
    return replace(finding, state="unreadable", problem=True, detail=f"is {kind}, expected a file", remedy=_ANEW)


def _wrong_size(finding: Finding, found: int) -> Finding | None:
    """Return a finding for a wrong size, or None; of 494 text parts, only the empty are known to be wrong."""
    expected = finding.expected_bytes
    detail = f"found {found:,} bytes, expected " + ("more" if expected is None else f"{expected:,}")
    if finding.name is not None and found < (expected or 1):
        return replace(finding, state="truncated", problem=True, detail=detail, remedy=_mended_by(finding, _AGAIN))
    if expected is not None and found > expected:
        return replace(finding, state="altered", problem=True, detail=detail, remedy=_mended_by(finding, _ANEW))
    return None


def _unlisted(finding: Finding, name: str, published: Published | None) -> Finding:
    """Return the finding for a file without a known MD5."""
    if published is not None and published.bytes is not None:
        return replace(finding, state="right", checked_by="MLCommons, its size")
    if published is not None:
        needed = published.needed
        remedy = _LIST if needed else ""
        return replace(finding, state="unverified", problem=needed, detail="no MD5 is published for it", remedy=remedy)
    if fnmatchcase(name, _TEXT_GLOB):
        detail = f"no published file, but {_TEXT_GLOB} would match it"
        return replace(finding, problem=True, detail=detail, remedy="move it elsewhere")
    if name == _ARCHIVE:
        return replace(finding, detail="the text's parts, packed; unpack it to check them")
    return replace(finding, detail="no file that MLCommons publishes for BERT")


def _beside_others(
    finding: Finding,
    published: Published | None,
    same: Sequence[str],
    right: Mapping[Published, str],
    by_md5: Mapping[str, Published],
) -> Finding:
    """Correct one finding, given the claimed files with the same content and the right ones."""
    if published is None:
        return _stranger_beside_others(finding, same, right, by_md5) if finding.state == "foreign" else finding
    better = right.get(published, finding.path)
    if better != finding.path:  # a correct file of this name is elsewhere
        if finding.state == "right":
            return replace(finding, state="doubled", detail=f"the same content as {better}", remedy="remove one")
        detail = f"{finding.detail}; {better} is right"
        return replace(finding, state="foreign", problem=False, detail=detail, remedy="remove it")
    if same and finding.state == "unverified":
        return replace(finding, state="doubled", problem=True, detail=f"the same content as {same[0]}", remedy=_ANEW)
    if same and finding.state == "altered":
        return replace(finding, detail=f"{finding.detail}; it has the content of {same[0]}")
    return finding


def _stranger_beside_others(
    finding: Finding, same: Sequence[str], right: Mapping[Published, str], by_md5: Mapping[str, Published]
) -> Finding:
    known = by_md5.get(finding.md5 or "")
    if known is not None and known not in right:
        finding = replace(finding, state="misnamed", problem=True, name=known.name, group=known.group)
        return replace(finding, detail=f"is {known.name}", remedy=f"rename it to {known.name}")
    if same:
        remedy = finding.remedy or "remove it"
        return replace(finding, state="doubled", detail=f"the same content as {same[0]}", remedy=remedy)
    return finding
