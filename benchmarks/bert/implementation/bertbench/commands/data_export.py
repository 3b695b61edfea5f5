"""`bertbench data export DIR`: write a dataset's samples in a published layout."""

import argparse

from bertbench.commands import add_flag, add_path, emit, say
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.data.formats.export import LAYOUTS, export, export_tfrecords
from bertbench.data.formats.reference_files import Written
from bertbench.data.mlcommons.compare import differences, published_bytes
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
    """Write the files. Return 1 if a TFRecord's size differs from MLCommons' published size."""
    if arguments.size_only and arguments.layout != "tfrecord":
        raise ConfigError(f"--size-only: found --layout {arguments.layout}, expected tfrecord; give --out instead")
    dataset, out = Dataset.open(arguments.folder, arguments.split), arguments.out
    samples, problems, lines = len(dataset), [], list[str]()
    content: dict[str, object] = {"path": out and str(out), "layout": arguments.layout}
    with Progress() as progress:
        if arguments.layout == "tfrecord":
            files = export_tfrecords(dataset, out, progress)
            number, published = len(files), published_bytes(Manifest.read(arguments.folder))
            problems, total = differences(files, published), sum(file.bytes for file in files)
            sizes = [{**file._asdict(), "published_bytes": published.get(file.name)} for file in files]
            content |= {"files": sizes, "total_bytes": total, "ok": not problems}
            lines = [*(_line(file, published.get(file.name)) for file in files), f"total  {total:,} bytes"]
        else:
            number = export(dataset, out, progress)
            content |= {"files": number, "samples": samples, "rows": samples}
        if out:
            progress.message(f"wrote {out}: {samples:,} samples in {number:,} files")
    emit(arguments.json, content, *lines)
    say(*problems)
    return 1 if problems else 0


def _line(file: Written, expected: int | None) -> str:
    as_published = "  as MLCommons publishes" if file.bytes == expected else ""
    return f"{file.name}  {file.samples:,} samples  {file.bytes:,} bytes{as_published}"
