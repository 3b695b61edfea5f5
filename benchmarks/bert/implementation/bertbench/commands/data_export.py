"""`bertbench data export DIR`: write a dataset's samples as HDF5, or compute the sizes of its TFRecords."""

import argparse

from bertbench.commands import add_flag, add_path, emit, say
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.data.formats.export import LAYOUTS, export_hdf5, tfrecords
from bertbench.data.mlcommons.reference_tfrecords import ReferenceFile, published_bytes, size_differences
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.manifest import Manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dataset, the layout and the folder to write."""
    add_path(parser, "folder", "DIR", "dataset to read")
    parser.add_argument("--layout", required=True, choices=list(LAYOUTS), help="layout to write (docs/formats.md)")
    target = parser.add_mutually_exclusive_group(required=True)
    add_path(target, "--out", "DIR", "folder to make")
    add_flag(target, "--size-only", "with --layout tfrecord: compute the sizes of the files, write nothing")
    parser.add_argument("--split", choices=["train", "eval"], default="train", help="split to write (default train)")


def run(arguments: argparse.Namespace) -> int:
    """Write HDF5 files, or print TFRecords' sizes. Return 1 if one differs from MLCommons' published size."""
    if arguments.size_only != (arguments.layout == "tfrecord"):
        raise ConfigError("expected --layout varlength with --out DIR, or --layout tfrecord with --size-only; give one")
    dataset = Dataset.open(arguments.folder, arguments.split)
    if arguments.size_only:
        return _sizes(dataset, arguments.json)
    with Progress() as progress:
        files = export_hdf5(dataset, arguments.out, progress)
        progress.message(f"wrote {arguments.out}: {len(dataset):,} samples in {files:,} files")
    emit(arguments.json, {"path": str(arguments.out), "files": files, "samples": len(dataset)})
    return 0


def _sizes(dataset: Dataset, as_json: bool) -> int:
    with Progress() as progress:
        files = tfrecords(dataset, progress)
    published = published_bytes(Manifest.read(dataset.folder))
    problems, total = size_differences(files, published), sum(file.bytes for file in files)
    sizes = [{**file._asdict(), "published_bytes": published.get(file.name)} for file in files]
    content = {"files": sizes, "total_bytes": total, "ok": not problems}
    lines = (_line(file, published.get(file.name)) for file in files)
    emit(as_json, content, *lines, f"total  {total:,} bytes")
    say(*problems)
    return 1 if problems else 0


def _line(file: ReferenceFile, expected: int | None) -> str:
    as_published = "  as MLCommons publishes" if file.bytes == expected else ""
    return f"{file.name}  {file.samples:,} samples  {file.bytes:,} bytes{as_published}"
