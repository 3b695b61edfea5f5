"""Check that a download of MLCommons' BERT files is complete and correct, for `bertbench data verify`."""

import os
import posixpath
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from bertbench.commands import emit
from bertbench.common.errors import ConfigError, DataError
from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.doctor import STATE_NAME, Diagnosis, examine
from bertbench.data.mlcommons.findings import Finding
from bertbench.data.mlcommons.published import DOWNLOADER, URIS, Group
from bertbench.data.mlcommons.record import is_ours

_TITLES: dict[Group, str] = {
    "text": "text (eval.txt, 500 parts)",
    "input": "vocab.txt, bert_config.json",
    "tf1": "checkpoint, TensorFlow 1",
    "tf2": "checkpoint, TensorFlow 2",
    "dump": "Wikipedia dump (not needed)",
    "tfrecord": "TFRecords (not needed)",
}
_TO_DOWNLOAD = ("missing", "truncated", "altered", "unreadable", "doubled")
_MOST_NOTES = 20


def check_download(folder: Path, record: Path | None, as_json: bool) -> int:
    """Return exit code 0 if every needed file is present and correct, 1 if not; `record` keeps what was checked.

    Raises DataError if there is no folder, ConfigError if `record` is another file.
    """
    state = record or folder / STATE_NAME
    if not folder.is_dir():
        found = "something else" if folder.exists() else "nothing"
        raise DataError(
            f"{printable(str(folder))}: found {found} there, expected a dataset's folder or the folder of a download"
        )
    if record is not None and os.path.lexists(record) and not is_ours(record):
        raise ConfigError(
            f"--state {printable(str(record))}: found another file there, expected none or an earlier check's record; "
            "give another name"
        )
    with Progress() as progress:
        diagnosis = examine(folder, state, progress)
    ok, downloads = not diagnosis.problems, _downloads(folder, diagnosis.problems)
    content = {
        "path": printable(str(folder)),
        "ok": ok,
        "read": diagnosis.read,
        "remembered": diagnosis.remembered,
        "files": diagnosis.findings,
        "downloads": downloads,
    }
    encoding = sys.stdout.encoding or "ascii"  # the terminal's, which may lack characters of the names
    report = "\n".join(_report(folder, diagnosis, downloads))
    emit(as_json, content, report.encode(encoding, "backslashreplace").decode(encoding))
    return 0 if ok else 1


def _downloads(folder: Path, problems: Sequence[Finding]) -> dict[str, str]:
    """Return, by URI, the command for each download that would fix a problem."""
    groups = {finding.group for finding in problems if finding.group and finding.state in _TO_DOWNLOAD}
    where = printable(shlex.quote(str(folder)))
    uris = sorted({URIS[group] for group in groups if group in URIS})
    return {uri: f"cd {where} && bash <(curl -s {DOWNLOADER}) {uri}" for uri in uris}


def _report(folder: Path, diagnosis: Diagnosis, downloads: dict[str, str]) -> Iterator[str]:
    findings, problems = diagnosis.findings, diagnosis.problems
    for group, title in _TITLES.items():
        files = [file for file in table.FILES if file.group == group]
        known = {file.name for file in files if file.needed} or {file.name for file in files}
        right = {finding.name for finding in findings if finding.group == group and finding.state == "right"}
        if any(finding.group == group for finding in findings):
            yield f"{title:30}{len(right & known):4} of {len(known)} right"
    yield from (_line(finding) for finding in problems if finding.state != "missing")
    yield from _missing([finding for finding in problems if finding.state == "missing"])
    notes = [finding for finding in findings if not finding.problem and finding.state != "right"]
    yield from (f"note: {_line(finding)}" for finding in notes[:_MOST_NOTES])
    if len(notes) > _MOST_NOTES:
        yield f"note: {len(notes) - _MOST_NOTES:,} more such files; --json lists them"
    if downloads:
        yield "To download (with -d FOLDER if the files lie in another folder than the downloader's own):"
        yield from (f"  {command}" for command in downloads.values())
    where = printable(str(folder))
    if problems:
        yield f"{where}: {len(problems):,} problem{'s' * (len(problems) != 1)}"
    else:
        text, vocabulary = (_folders(where, findings, name) for name in ("eval.txt", "vocab.txt"))
        yield f"{where}: everything needed is there and right; text in {text}, vocab.txt in {vocabulary}"


def _folders(folder: str, findings: Sequence[Finding], name: str) -> str:
    """Return the folders that hold the correct file of this name."""
    right = (finding.path for finding in findings if finding.name == name and finding.state == "right")
    return " and ".join(posixpath.join(folder, posixpath.dirname(path)).rstrip("/") for path in right)


def _line(finding: Finding) -> str:
    return f"{finding.path}: {finding.state}: {finding.detail}" + (f"; {finding.remedy}" if finding.remedy else "")


def _missing(findings: Sequence[Finding]) -> Iterator[str]:
    """List missing files; of the text, neighbours in the published order in a line."""
    order = {file.name: place for place, file in enumerate(table.FILES) if file.group == "text"}

    def neighbours(numbered: tuple[int, Finding]) -> object:
        number, finding = numbered
        return order[finding.path] - number if finding.group == "text" else (finding.group, finding.path)

    for _, run in groupby(enumerate(findings), neighbours):
        (_, first), *rest = run
        if rest:
            yield f"{first.path} to {rest[-1][1].path}: {len(rest) + 1} files missing"
        else:
            yield f"{first.path}: missing" + (f" ({first.expected_bytes:,} bytes)" if first.expected_bytes else "")
