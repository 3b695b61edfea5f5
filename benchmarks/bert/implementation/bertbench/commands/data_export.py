"""`bertbench data export DIR`: a dataset's samples in a published layout."""

import argparse
from pathlib import Path

from bertbench.commands import emit
from bertbench.common.progress import Progress
from bertbench.data.formats.export import export
from bertbench.data.formats.hdf5_write import WRITERS
from bertbench.data.store.dataset import Dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to write, and where."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="dataset to read")
    parser.add_argument("--layout", required=True, choices=list(WRITERS), help="layout to write (docs/formats.md)")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to make")
    parser.add_argument("--split", choices=["train", "eval"], default="train", help="split to write (default train)")


def run(arguments: argparse.Namespace) -> int:
    """Write one file a shard."""
    with Progress() as progress:
        written = export(Dataset.open(arguments.folder, arguments.split), arguments.layout, arguments.out, progress)
        progress.message(
            f"wrote {arguments.out}: {written.samples:,} samples in {written.rows:,} rows of {written.files:,} files"
        )
    emit(arguments.json, {"path": str(arguments.out), "layout": arguments.layout, **written._asdict()})
    return 0
