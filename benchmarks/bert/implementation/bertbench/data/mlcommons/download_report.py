"""Report on a download of MLCommons' BERT files: what is right, what is wrong, and the downloads that would help."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.check import CheckedFile
from bertbench.data.mlcommons.published import DOWNLOADER, INPUT_URI, TEXT_URI, Group
from compliance.read.record import printable

_TITLES: dict[Group, str] = {
    "text": "text (eval.txt, 500 parts)",
    "input": "vocab.txt, bert_config.json",
    "tf1": "checkpoint, TensorFlow 1",
    "tf2": "checkpoint, TensorFlow 2",
    "dump": "Wikipedia dump (not needed)",
}


def downloads_that_help(folder: Path, problems: Sequence[CheckedFile]) -> dict[str, str]:
    """Return, by URI, the command for each download that would fix a problem."""
    where = printable(shlex.quote(str(folder)))
    groups = {finding.group for finding in problems if finding.group and finding.state != "unverified"}
    uris = {TEXT_URI if group == "text" else INPUT_URI for group in groups}
    return {uri: f"cd {where} && bash <(curl -s {DOWNLOADER}) {uri}" for uri in sorted(uris)}


def report_lines(
    folder: str, findings: Sequence[CheckedFile], problems: Sequence[CheckedFile], downloads: dict[str, str]
) -> Iterator[str]:
    """Yield the lines of the report: counts by group, problems, notes, downloads and the verdict."""
    for group, title in _TITLES.items():
        files = [file for file in table.FILES if file.group == group]
        known = {file.name for file in files if file.needed} or {file.name for file in files}
        right = {finding.name for finding in findings if finding.group == group and finding.state == "right"}
        if any(finding.group == group for finding in findings):
            yield f"{title:30}{len(right & known):4} of {len(known)} correct"
    yield from (_line(finding) for finding in problems if finding.state != "missing")
    yield from _missing({(finding.group, finding.name) for finding in problems if finding.state == "missing"})
    yield from (f"note: {_line(finding)}" for finding in findings if not finding.problem and finding.state != "right")
    if downloads:
        yield "To download (add -d FOLDER if the files are in another folder than the downloader's own):"
        yield from (f"  {command}" for command in downloads.values())
    if problems:
        noun = "problem" if len(problems) == 1 else "problems"
        yield f"{folder}: {len(problems):,} {noun}"
    else:
        yield f"{folder}: all required files are present and correct"


def _line(finding: CheckedFile) -> str:
    return f"{finding.path}: {finding.state}: {finding.detail}" + (f"; {finding.remedy}" if finding.remedy else "")


def _missing(missing: Collection[tuple[Group | None, str | None]]) -> Iterator[str]:
    """List missing files; files that follow each other in the published order share a line."""
    for (_, is_missing), files in groupby(table.FILES, lambda file: (file.group, (file.group, file.name) in missing)):
        first, *rest = files
        if is_missing and rest:
            yield f"{first.name} to {rest[-1].name}: {len(rest) + 1} files missing"
        elif is_missing:
            yield f"{first.name}: missing" + (f" ({first.bytes:,} bytes)" if first.bytes else "")
