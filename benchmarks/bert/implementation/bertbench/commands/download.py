"""Check that a download of MLCommons' BERT files is complete and correct, for `bertbench data verify`."""

import posixpath
import shlex
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertbench.commands import emit
from bertbench.common.errors import ConfigError, DataError
from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.checked import is_ours
from bertbench.data.mlcommons.doctor import STATE_NAME, Diagnosis, examine
from bertbench.data.mlcommons.findings import Finding
from bertbench.data.mlcommons.published import DOWNLOADER, URIS, Group

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
    if record is not None:
        _require_ours(record)
    with Progress() as progress:
        diagnosis = examine(folder, state, progress)
    downloads = _downloads(folder, diagnosis.findings)
    content = {
        "path": printable(str(folder)),
        "ok": diagnosis.ok,
        "read": diagnosis.hashed,
        "remembered": diagnosis.remembered,
        "files": diagnosis.findings,
        "downloads": downloads,
    }
    encoding = sys.stdout.encoding or "ascii"  # the terminal's, which may lack characters of the names
    report = "\n".join(_report(folder, diagnosis, downloads))
    emit(as_json, content, report.encode(encoding, "backslashreplace").decode(encoding))
    return 0 if diagnosis.ok else 1


def _require_ours(state: Path) -> None:
    """Refuse to overwrite a file that isn't a record of a check."""
    try:
        status = state.lstat()
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) or not is_ours(state):
        raise ConfigError(
            f"--state {printable(str(state))}: found another file there, expected none or an earlier check's record; "
            "give another name"
        )


def _downloads(folder: Path, findings: Sequence[Finding]) -> dict[str, str]:
    """Return, by URI, the command for each download that would fix a problem."""
    groups = {
        finding.group for finding in findings if finding.problem and finding.group and finding.state in _TO_DOWNLOAD
    }
    uris = {URIS[group]: None for group in groups if group in URIS}
    where = printable(shlex.quote(str(folder)))
    return {uri: f"cd {where} && bash <(curl -s {DOWNLOADER}) {uri}" for uri in sorted(uris)}


def _report(folder: Path, diagnosis: Diagnosis, downloads: dict[str, str]) -> Iterator[str]:
    findings = diagnosis.findings
    for group, title in _TITLES.items():
        files = [file for file in table.FILES if file.group == group]
        known = {file.name for file in files if file.needed} or {file.name for file in files}
        right = {finding.name for finding in findings if finding.group == group and finding.state == "right"}
        if any(finding.group == group for finding in findings):
            yield f"{title:30}{len(right & known):4} of {len(known)} right"
    problems = [finding for finding in findings if finding.problem]
    yield from _lines([finding for finding in problems if finding.state != "missing"])
    yield from _missing([finding for finding in problems if finding.state == "missing"])
    notes = [finding for finding in findings if not finding.problem and finding.state != "right"]
    yield from (f"note: {line}" for line in _lines(notes[:_MOST_NOTES]))
    if len(notes) > _MOST_NOTES:
        yield f"note: {len(notes) - _MOST_NOTES:,} more such files; --json lists them"
    if downloads:
        yield "To download (with -d FOLDER if the files lie in another folder than the downloader's own):"
        yield from (f"  {command}" for command in downloads.values())
    where = printable(str(folder))
    if diagnosis.ok:
        text, vocabulary = (_folders(folder, findings, name) for name in ("eval.txt", "vocab.txt"))
        yield f"{where}: everything needed is there and right; text in {text}, vocab.txt in {vocabulary}"
    else:
        yield f"{where}: {len(problems):,} problem{'s' * (len(problems) != 1)}"


def _folders(folder: Path, findings: Sequence[Finding], name: str) -> str:
    """Return the folders that hold the correct file of this name."""
    right = (finding.path for finding in findings if finding.name == name and finding.state == "right")
    return " and ".join(posixpath.join(printable(str(folder)), posixpath.dirname(path)).rstrip("/") for path in right)


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        yield f"{finding.path}: {finding.state}: {finding.detail}{remedy}"


def _missing(findings: Sequence[Finding]) -> Iterator[str]:
    """List missing files, grouping neighbours in the published order."""
    order: dict[tuple[Group | None, str], int] = {
        (file.group, file.name): place for place, file in enumerate(table.FILES)
    }
    runs: list[list[Finding]] = []
    for finding in findings:
        place = order[finding.group, finding.path]
        if runs and finding.group == "text" and order[runs[-1][-1].group, runs[-1][-1].path] == place - 1:
            runs[-1].append(finding)
        else:
            runs.append([finding])
    for run in runs:
        if len(run) == 1:
            size = run[0].expected_bytes
            yield f"{run[0].path}: missing" + (f" ({size:,} bytes)" if size else "")
        else:
            yield f"{run[0].path} to {run[-1].path}: {len(run)} files missing"
