"""`bertbench data verify`: compare a download of MLCommons' BERT files with the published names, sizes and MD5 sums.

Only the files that a run needs are listed. The sums of 494 of the 500 text parts aren't published; the downloader
writes them into a list beside the text. Other files in the folder are neither read nor reported, except links to
nothing.
Sources: mlcommons/training, retired_benchmarks/bert, README.md (text) and dataset.md (other files).
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.system_faults import unreadable
from compliance.read.record import printable

TEXT_LIST = "bert-preprocessed-wikipedia-dataset.md5"
"""The downloader's list of the sums of the text."""
_SUM_AND_NAME = re.compile(r"^([0-9a-f]{32}) [ *](.+)$", re.MULTILINE)  # a line of md5sum
_AGAIN = "remove it and run the download again"


class PublishedFile(NamedTuple):
    """A file that MLCommons publishes; size and MD5 are None if they aren't published."""

    name: str
    bytes: int | None = None
    md5: str | None = None


_PARTS = {
    0: (27_150_902, "a64a7c31eff5cd38ae6d94f7a6229dab"),
    1: (27_198_569, "549a9ed4f805257245bec936563abfd0"),
    2: (27_395_616, "1a1366ddfc03aef9d41ce552ee247abf"),
    497: (24_775_043, "66835aa75d4855f2e678e8f3d73812e9"),
    498: (24_575_505, "e6d68a7632e9f4aa1a94128cce556dc9"),
    499: (21_873_644, "b3b087ad24e3770d879a351664cebc5a"),
}
PUBLISHED_FILES = (
    PublishedFile("bert_config.json", 314, "7f59165e21b7d566db610ff6756c926b"),
    PublishedFile("vocab.txt", 231_508, "64800d5d8528ce344256daf115d4965e"),
    PublishedFile("model.ckpt-28252.index", 17_371, "f97de3ae180eb8d479555c939d50d048"),
    PublishedFile("model.ckpt-28252.data-00000-of-00001", 4_034_713_312, "50797acd537880bfb5a7ade80d976129"),
    PublishedFile("eval.txt", 32_851_144, "2a220f790517261547b1b45ed3ada07a"),
    *(PublishedFile(f"part-{number:05d}-of-00500", *_PARTS.get(number, ())) for number in range(500)),
)


@dataclass
class DownloadCheck:
    """The result for each published file."""

    right: list[str] = field(default_factory=list)
    """Paths."""
    missing: list[str] = field(default_factory=list)
    """Published names."""
    wrong: list[str] = field(default_factory=list)
    """A line for each file: its path, what was found, what was expected and what to do."""


def check_download(folder: Path, progress: Progress) -> DownloadCheck:
    """Check the files in `folder` and its subfolders, as the downloader leaves them.

    Of several files of one name, such as those of two checkpoints, one must be right. Raises DataError if a folder or
    the list of sums can't be read.
    """
    paths_by_name = _paths_by_name(folder)
    sums = _listed_sums(paths_by_name.get(TEXT_LIST, []))
    names = {published.name for published in PUBLISHED_FILES}
    check = DownloadCheck()
    for number, published in enumerate(PUBLISHED_FILES):
        progress.update(number, len(PUBLISHED_FILES), f"{number} of {len(PUBLISHED_FILES)} files: {published.name}")
        expected = published._replace(md5=published.md5 or sums.get(published.name))
        paths = paths_by_name.get(published.name, [])
        faults = [_fault(path, expected) for path in paths]
        if not paths:
            check.missing.append(published.name)
        elif None in faults:
            check.right.append(printable(str(paths[faults.index(None)])))
        else:
            check.wrong.append(printable(str(faults[0])))
    for name, paths in paths_by_name.items():  # a link may stand for a whole folder of the download
        if name not in names and not name.startswith("."):
            faults = [_fault(path, PublishedFile(name)) for path in paths if _is_broken(path)]
            check.wrong += [printable(str(fault)) for fault in faults]
    return check


def _paths_by_name(folder: Path) -> dict[str, list[Path]]:
    """Return the paths of all files in a folder and its subfolders, in order; links to folders aren't followed.

    Links to nothing are included; pipes, sockets and devices aren't. Raises DataError if a folder can't be listed.
    """

    def refuse(error: OSError) -> None:
        raise DataError(unreadable(Path(error.filename), error, "give the folder of a download")) from error

    paths: dict[str, list[Path]] = {}
    for where, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in names:
            path = Path(where) / name
            if path.is_file() or _is_broken(path):
                paths.setdefault(name, []).append(path)
    return paths


def _listed_sums(lists: Sequence[Path]) -> dict[str, str]:
    """Return the MD5 sums by the files' names, from lists that md5sum can read."""
    sums: dict[str, str] = {}
    for path in lists:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise DataError(unreadable(path, error, "download it again")) from error
        for md5, name in _SUM_AND_NAME.findall(text):
            sums[Path(name).name] = md5
    return sums


def _is_broken(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _fault(path: Path, expected: PublishedFile) -> str | None:
    """Return what is wrong with a file, and what to do; None if its size and its MD5 are the expected ones."""
    try:
        size = path.stat().st_size
        if expected.md5 is None:
            return f"{path}: found no MD5 to compare with, expected one in {TEXT_LIST}; copy that list into the folder"
        if expected.bytes not in (None, size):
            return f"{path}: found {size:,} bytes, expected {expected.bytes:,}; {_AGAIN}"
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        return unreadable(path, error, "make it readable")
    if md5 != expected.md5:
        return f"{path}: found MD5 {md5}, expected {expected.md5}; {_AGAIN}"
    return None
