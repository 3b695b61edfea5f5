"""`bertbench data prepare --from-hdf5 | --from-tfrecord`: convert published samples to a dataset folder."""

import argparse
from dataclasses import asdict
from pathlib import Path

from bertbench.commands import check_at_least_one, emit
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.data.formats.convert import Conversion, convert
from bertbench.data.formats.files import Format, input_files
from bertbench.data.store.dataset import SplitName
from bertbench.data.text.vocabulary import Vocabulary

_SHARD_SAMPLES = 1 << 15  # MLPerf's 157 million samples make 4,783 shards, of at most 0.6 GiB of memory each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the published samples and the facts that their files lack."""
    group = parser.add_argument_group("published samples instead of text (docs/formats.md)")
    group.add_argument(
        "--from-hdf5",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="HDF5 files, or folders of them: fixed, varlength, packed",
    )
    group.add_argument(
        "--from-tfrecord", nargs="+", type=Path, metavar="PATH", help="TFRecord files, or folders of them"
    )
    group.add_argument(
        "--vocab-size", type=int, metavar="N", help="entries of their vocabulary, if there is no --vocab"
    )
    group.add_argument("--split", choices=["train", "eval"], help="which split they are (default train)")
    group.add_argument(
        "--shard-samples", type=int, metavar="N", help=f"samples in a shard to write (default {_SHARD_SAMPLES:,})"
    )


def asked(arguments: argparse.Namespace) -> bool:
    """Return whether to read published samples. Raises ConfigError for an option that needs them."""
    if arguments.from_hdf5 or arguments.from_tfrecord:
        return True
    for name in ("vocab_size", "split", "shard_samples"):
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"found {option} without published samples; give --from-hdf5 or --from-tfrecord, or drop it"
            )
    return False


def run(arguments: argparse.Namespace) -> int:
    """Convert, or report that the dataset exists already."""
    if arguments.from_hdf5 and arguments.from_tfrecord:
        raise ConfigError("found --from-hdf5 and --from-tfrecord, expected one of them; convert one after the other")
    if arguments.text or arguments.wiki:
        raise ConfigError("found text and published samples, expected one of them; leave out --text and --wiki")
    if arguments.out is None:
        raise ConfigError("found no --out, expected the folder to make; give --out DIR")
    if (arguments.vocab_size is None) == (arguments.vocab is None):
        raise ConfigError("expected one of --vocab-size N and --vocab FILE: ids are checked against it; give one")
    check_at_least_one(arguments, "shard_samples")
    split: SplitName = arguments.split or "train"
    of: Format = "hdf5" if arguments.from_hdf5 else "tfrecord"
    vocabulary = Vocabulary.read(arguments.vocab) if arguments.vocab else None
    conversion = Conversion(
        format=of,
        files=input_files(arguments.from_hdf5 or arguments.from_tfrecord, of),
        split=split,
        vocab_size=len(vocabulary) if vocabulary else arguments.vocab_size,
        shard_samples=arguments.shard_samples or _SHARD_SAMPLES,
        vocabulary=vocabulary,
    )
    with Progress() as progress:
        manifest, existed = convert(arguments.out, conversion, progress)
        samples = manifest.splits()[split].samples
        progress.message(f"{'reusing' if existed else 'wrote'} {arguments.out}: {samples:,} {split} samples")
    emit(arguments.json, {"path": str(arguments.out), "reused": existed, **asdict(manifest)})
    return 0
