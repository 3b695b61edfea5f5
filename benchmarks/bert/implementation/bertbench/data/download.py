"""`bertbench data verify`: compare a download of MLCommons' BERT files with the published names, sizes and MD5 sums.

Only the files that a run needs are listed. The sums of 494 of the 500 text parts aren't published; they come from the
lists of sums in the folder, whatever their names are, such as the one that the downloader writes beside the text. Of
other files, only links to nothing and archives that may hold missing files are reported.
Sources: mlcommons/training, retired_benchmarks/bert, README.md (text) and dataset.md (other files).
"""

import hashlib
import os
import re
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bertbench.common.compressed import unpacking
from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.system_faults import unreadable
from compliance.read.record import printable

TEXT_LIST = "bert-preprocessed-wikipedia-dataset.md5"
"""The downloader's list of the sums of the text."""
_LONGEST_LIST = 1 << 20  # bytes; the downloader's list has 30,000
# a line of md5sum, or of BSD's md5, which macOS has; a line may end with a carriage return
_SUM_AND_NAME = re.compile(
    r"^(?:([0-9a-f]{32}) [ *](.+?)|MD5 \((.+)\) = ([0-9a-f]{32}))\r?$", re.MULTILINE | re.IGNORECASE
)
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
    packed: list[str] = field(default_factory=list)
    """If files are missing, a line for each archive or compressed file: its path, and how to unpack it."""
    wrong: list[str] = field(default_factory=list)
    """A line for each file: its path, what was found, what was expected and what to do."""


def check_download(folder: Path, progress: Progress) -> DownloadCheck:
    """Check the files in `folder` and its subfolders, as the downloader leaves them.

    Of several files of one name, such as those of two checkpoints, one must be right. A part whose sum isn't published
    is right if one of the lists has its sum. Raises DataError if a folder can't be read.
    """
    paths_by_name = _paths_by_name(folder)
    names = {published.name for published in PUBLISHED_FILES}
    others = {name: paths for name, paths in paths_by_name.items() if name not in names}
    sums = _listed_sums(others)
    check = DownloadCheck()
    for number, published in enumerate(PUBLISHED_FILES):
        progress.update(number, len(PUBLISHED_FILES), f"{number} of {len(PUBLISHED_FILES)} files: {published.name}")
        expected = {published.md5} if published.md5 else sums.get(published.name, set())
        paths = paths_by_name.get(published.name, [])
        faults = [_fault(path, published.bytes, expected) for path in paths]
        if not paths:
            check.missing.append(published.name)
        elif None in faults:
            check.right.append(printable(str(paths[faults.index(None)])))
        else:
            check.wrong.append(printable(str(faults[0])))
    for name, paths in others.items():
        if name.startswith("."):
            continue
        for path in paths:
            if _is_broken(path):  # it may stand for a whole folder of the download
                check.wrong.append(printable(str(_fault(path, None, set()))))
            elif check.missing and (packed := unpacking(path)):
                check.packed.append(printable(f"{path}: {packed}"))
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


def _listed_sums(paths_by_name: dict[str, list[Path]]) -> dict[str, set[str]]:
    """Return the MD5 sums by the names of their files, from all lists of sums among these files."""
    sums: dict[str, set[str]] = {}
    for path in chain.from_iterable(paths_by_name.values()):
        try:
            if path.stat().st_size > _LONGEST_LIST:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # if it is a list, the parts in it are reported
            continue
        for sum_first, name_last, name_first, sum_last in _SUM_AND_NAME.findall(text):
            name = name_last or name_first
            sums.setdefault(Path(name).name, set()).add((sum_first or sum_last).lower())
    return sums


def _is_broken(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _fault(path: Path, expected_bytes: int | None, expected_sums: set[str]) -> str | None:
    """Return what is wrong with a file, and what to do; None if it has the expected size and one of the MD5 sums."""
    try:
        size = path.stat().st_size
        if not expected_sums:
            return (
                f"{path}: found no MD5 to compare with, expected one in a list that can be read, such as {TEXT_LIST}; "
                "copy that list into the folder"
            )
        if expected_bytes not in (None, size):
            return f"{path}: found {size:,} bytes, expected {expected_bytes:,}; {_AGAIN}"
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        return unreadable(path, error, "make it readable")
    if md5 not in expected_sums:
        return f"{path}: found MD5 {md5}, expected {' or '.join(sorted(expected_sums))}; {_AGAIN}"
    return None
