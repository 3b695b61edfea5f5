"""`bertbench data export DIR`: write a dataset's samples in a published layout."""

import argparse
import sys
from pathlib import Path

from bertbench.commands import emit
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.data.formats.export import LAYOUTS, export, export_tfrecords, tfrecord_sizes
from bertbench.data.formats.reference_files import Written
from bertbench.data.mlcommons.compare import differences, published_bytes
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.manifest import Manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dataset, the layout and the folder to write."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="dataset to read")
    parser.add_argument("--layout", required=True, choices=list(LAYOUTS), help="layout to write (docs/formats.md)")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, metavar="DIR", help="folder to make")
    target.add_argument("--size-only", action="store_true", help="with --layout tfrecord: compute the sizes of the files, write nothing")  # fmt: skip  # noqa: E501
    parser.add_argument("--split", choices=["train", "eval"], default="train", help="split to write (default train)")


def run(arguments: argparse.Namespace) -> int:
    """Write the files. Return 1 if a TFRecord's size differs from MLCommons' published size."""
    if arguments.layout == "tfrecord":
        return _tfrecords(arguments)
    if arguments.size_only:
        raise ConfigError(f"--size-only: found --layout {arguments.layout}, expected tfrecord; give --out instead")
    with Progress() as progress:
        written = export(Dataset.open(arguments.folder, arguments.split), arguments.out, progress)
        progress.message(f"wrote {arguments.out}: {written.samples:,} samples in {written.files:,} files")
    emit(arguments.json, {"path": str(arguments.out), "layout": arguments.layout, **written._asdict()})
    return 0


def _tfrecords(arguments: argparse.Namespace) -> int:
    dataset = Dataset.open(arguments.folder, arguments.split)
    with Progress() as progress:
        if arguments.size_only:
            files = tfrecord_sizes(dataset, progress)
        else:
            files = export_tfrecords(dataset, arguments.out, progress)
            progress.message(
                f"wrote {arguments.out}: {sum(file.samples for file in files):,} samples in {len(files):,} files"
            )
    manifest = Manifest.read(arguments.folder)
    published = {file.name: published_bytes(manifest, file.name) for file in files}
    problems = differences(files, manifest)
    total = sum(file.bytes for file in files)
    content = {
        "path": None if arguments.size_only else str(arguments.out),
        "layout": "tfrecord",
        "files": [{**file._asdict(), "published_bytes": published[file.name]} for file in files],
        "total_bytes": total,
        "ok": not problems,
    }
    lines = [*(_line(file, published[file.name]) for file in files), f"total  {total:,} bytes"]
    emit(arguments.json, content, "\n".join(lines))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _line(file: Written, expected: int | None) -> str:
    as_published = "  as MLCommons publishes" if file.bytes == expected else ""
    return f"{file.name}  {file.samples:,} samples  {file.bytes:,} bytes{as_published}"
