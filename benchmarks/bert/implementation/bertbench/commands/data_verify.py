"""`bertbench data verify DIR`: check a dataset, or a download of MLCommons' files.

Of a dataset it recomputes checksums and counts, and with --against it compares the samples with another's.
"""

import argparse
from pathlib import Path

from bertbench.commands import add_path, emit, say
from bertbench.commands.download import check_download
from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.system_faults import exists
from bertbench.data.store.manifest import MANIFEST_NAME
from bertbench.data.store.verify import differing_splits, verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to check."""
    add_path(parser, "folder", "DIR", "dataset, or downloads of MLCommons' files, in subfolders too")
    add_path(parser, "--against", "DIR", "dataset that must hold the same samples, in any order")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 without problems, 1 with one line per problem."""
    if arguments.against is None and _is_download(arguments.folder):
        return check_download(arguments.folder, arguments.json)
    with Progress() as progress:
        found = verify(arguments.folder, progress)
        problems = list(found.problems)
        if arguments.against is not None:
            problems += differing_splits(
                arguments.folder, found, arguments.against, verify(arguments.against, progress)
            )
    splits = {name: {"samples": split.samples, "digest": str(split)} for name, split in found.multisets.items()}
    content = {"path": str(arguments.folder), "ok": not problems, "problems": problems, "splits": splits}
    counts = [f"{split.samples:,} {name} samples" for name, split in found.multisets.items()]
    same = [f"the same as in {arguments.against}"] if arguments.against else []
    text = ", ".join((*counts, "all sound, as the manifest says", *same))
    emit(arguments.json, content, "" if problems else f"{arguments.folder}: {text}")
    say(*problems)
    return 1 if problems else 0


def _is_download(folder: Path) -> bool:
    """Return whether a folder is to be checked as a download: it is no dataset."""
    return not exists(folder / MANIFEST_NAME, DataError) and not (folder / "train").is_dir()
