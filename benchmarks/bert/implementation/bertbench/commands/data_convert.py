"""`bertbench data prepare --from-hdf5 | --from-tfrecord`: convert published samples to a dataset folder."""

import argparse
from pathlib import Path

from bertbench.commands import add_number, add_path
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.data.formats.convert import Conversion, Format, convert, input_files
from bertbench.data.store.manifest import Manifest
from bertbench.data.text.vocabulary import Vocabulary

_SHARD_SAMPLES = 1 << 15  # MLPerf's 157 million samples make 4,783 shards, of at most 0.6 GiB of memory each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the published samples and the facts that their files lack."""
    group = parser.add_argument_group("published samples instead of text (docs/formats.md)")
    source = group.add_mutually_exclusive_group()
    add_path(source, "--from-hdf5", "PATH", "HDF5 files, or folders of them: fixed, varlength, packed", nargs="+")
    add_path(source, "--from-tfrecord", "PATH", "TFRecord files, or folders of them", nargs="+")
    add_number(group, "--vocab-size", "N", "entries of their vocabulary, if there is no --vocab")
    group.add_argument("--split", choices=["train", "eval"], help="which split they are (default train)")
    add_number(group, "--shard-samples", "N", f"samples in a shard to write (default {_SHARD_SAMPLES:,})")


def make(arguments: argparse.Namespace, progress: Progress) -> tuple[Path, Manifest, bool]:
    """Return the folder, its manifest, and whether it was there."""
    if arguments.text or arguments.wiki or arguments.out is None:
        raise ConfigError("published samples: give --out DIR, and neither --text nor --wiki")
    if (arguments.vocab_size is None) == (arguments.vocab is None):
        raise ConfigError("expected one of --vocab-size N and --vocab FILE: ids are checked against it; give one")
    of: Format = "hdf5" if arguments.from_hdf5 else "tfrecord"
    vocabulary = Vocabulary.read(arguments.vocab) if arguments.vocab else None
    conversion = Conversion(
        format=of,
        files=input_files(arguments.from_hdf5 or arguments.from_tfrecord, of),
        split=arguments.split or "train",
        vocab_size=len(vocabulary) if vocabulary else arguments.vocab_size,
        shard_samples=arguments.shard_samples or _SHARD_SAMPLES,
        vocabulary=vocabulary,
    )
    return arguments.out, *convert(arguments.out, conversion, progress)
