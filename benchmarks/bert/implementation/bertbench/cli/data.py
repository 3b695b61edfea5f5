"""Commands about datasets: make them from text or published samples, check, shuffle and describe them."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bertbench.cli.arguments import (
    add_number,
    add_path,
    add_system_arguments,
    emit,
    say,
    seed,
    system_of,
)
from bertbench.common.errors import ConfigError, DataError
from bertbench.common.paths import data_path, shown_path
from bertbench.common.progress import Progress
from bertbench.common.reads import Reads
from bertbench.common.system_faults import exists

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.data.formats.convert import Format
    from bertbench.data.store.manifest import Manifest
    from bertbench.data.text.prepare import TextRecipe

_SYSTEM = "cpu_demo"
_SHOWN = 5  # missing files
_SHARD_SAMPLES = 1 << 15  # MLPerf's 157 million samples make 4,783 shards, of at most 0.6 GiB of memory each
_MLPERF_ONLY = ("dupe_factor", "seed", "workers", "select_eval")

Made = tuple[Path, "Manifest", bool]
"""A dataset's folder, its manifest, and whether it existed before."""


def add_prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the text, the recipe and the folder of the dataset."""
    text = parser.add_argument_group("text (default: the documentation of the installed Python, numpy and torch)")
    add_path(
        text,
        "--text",
        "FILE",
        "text with one sentence per line and a blank line between articles",
        nargs="+",
        default=[],
    )
    add_path(text, "--wiki", "FILE", "WikiExtractor output with <doc> blocks", nargs="+", default=[])
    add_path(parser, "--vocab", "FILE", "vocab.txt (default: train a vocabulary on the text)")
    add_path(parser, "--out", "DIR", "folder to make (default: the system's data.path)")
    parser.add_argument(
        "--recipe", choices=["system", "mlperf"], default="system",
        help="`system` follows data.recipe of --system and holds documents out for evaluation; `mlperf` makes exactly "
        "the samples of MLPerf's reference",
    )  # fmt: skip
    parser.add_argument("--system", help=f"system whose data.recipe and model sizes to use (default {_SYSTEM})")
    add_system_arguments(parser, Reads("data prepare"))  # settings beyond the recipe can't change a dataset
    mlperf = parser.add_argument_group("--recipe mlperf (needs --text, --vocab and --out)")
    add_number(mlperf, "--dupe-factor", "N", "number of times to use each article (default 10)")
    mlperf.add_argument("--seed", type=seed, help="random_seed of MLPerf's reference script (default 12345)")
    add_number(mlperf, "--workers", "N", "text files to process in parallel (default 1)")
    add_number(mlperf, "--select-eval", "N", "keep N evenly spaced samples as the evaluation set: 10000 in MLPerf")


def prepare(arguments: argparse.Namespace) -> int:
    """Prepare the dataset from text, or report that it exists already."""
    follows_mlperf = arguments.recipe == "mlperf"
    if follows_mlperf and (arguments.system or arguments.overrides):
        raise ConfigError("--system and --set: --recipe mlperf is not made by a system's data.recipe; leave them out")
    if not follows_mlperf:
        for name in _MLPERF_ONLY:
            if getattr(arguments, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option}: only with --recipe mlperf; otherwise use --set data.recipe.NAME=VALUE")
    make = _by_mlperf if follows_mlperf else _by_system
    with Progress() as progress:
        _report_dataset(arguments, progress, make(arguments, progress))
    return 0


def add_hdf5_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the HDF5 files, and the dataset to make."""
    _add_conversion_arguments(parser, "HDF5 files or folders of them, in the fixed, varlength or packed layout")


def convert_hdf5(arguments: argparse.Namespace) -> int:
    """Convert samples in HDF5 files to a dataset, or report that it exists already."""
    return _convert(arguments, "hdf5")


def add_tfrecord_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the TFRecord files, and the dataset to make."""
    _add_conversion_arguments(parser, "TFRecord files or folders of them")


def convert_tfrecord(arguments: argparse.Namespace) -> int:
    """Convert samples in TFRecord files to a dataset, or report that it exists already."""
    return _convert(arguments, "tfrecord")


def _add_conversion_arguments(parser: argparse.ArgumentParser, paths: str) -> None:
    add_path(parser, "paths", "PATH", paths, nargs="+")
    vocabulary = parser.add_mutually_exclusive_group(required=True)
    add_number(vocabulary, "--vocab-size", "N", "size of the samples' vocabulary, against which ids are checked")
    add_path(vocabulary, "--vocab", "FILE", "vocab.txt of the samples, which is stored with the dataset")
    add_path(parser, "--out", "DIR", "folder to make", required=True)
    parser.add_argument(
        "--split", choices=["train", "eval"], default="train", help="split that the samples belong to (default train)"
    )
    add_number(
        parser, "--shard-samples", "N", f"samples per shard (default {_SHARD_SAMPLES:,})", default=_SHARD_SAMPLES
    )


def _convert(arguments: argparse.Namespace, file_format: "Format") -> int:
    from bertbench.data.formats.convert import Conversion, convert_samples, input_files
    from bertbench.data.text.vocabulary import Vocabulary

    vocabulary = Vocabulary.read(arguments.vocab) if arguments.vocab else None
    with Progress() as progress:
        conversion = Conversion(
            format=file_format,
            files=input_files(arguments.paths, file_format, progress),
            split=arguments.split,
            vocab_size=len(vocabulary) if vocabulary else arguments.vocab_size,
            shard_samples=arguments.shard_samples,
            vocabulary=vocabulary,
        )
        made = convert_samples(arguments.out, conversion, progress)
        _report_dataset(arguments, progress, (arguments.out, *made))
    return 0


def _warn_of_case(vocab: Path, progress: "Progress") -> None:
    from bertbench.data.text.vocabulary import Vocabulary

    if warning := Vocabulary.read(vocab).wrong_case(vocab, lower_case=True):
        progress.message(warning)


def _by_mlperf(arguments: argparse.Namespace, progress: "Progress") -> Made:
    from bertbench.data.text.mlperf import MlperfRecipe, prepare_mlperf

    if not (arguments.text and arguments.vocab and arguments.out) or arguments.wiki:
        raise ConfigError("--recipe mlperf: give --text FILE..., --vocab vocab.txt and --out DIR, and no --wiki")
    options = {name: value for name in _MLPERF_ONLY if (value := getattr(arguments, name)) is not None}
    workers = options.pop("workers", 1)
    _warn_of_case(arguments.vocab, progress)
    made = prepare_mlperf(
        arguments.out, tuple(arguments.text), arguments.vocab, MlperfRecipe(**options), workers, progress
    )
    return arguments.out, *made


def _by_system(arguments: argparse.Namespace, progress: "Progress") -> Made:
    from bertbench.data.text.prepare import Texts
    from bertbench.data.text.prepare import prepare as prepared

    arguments.system = arguments.system or _SYSTEM
    system = system_of(arguments)
    if arguments.vocab and (option := system.given.get("data.recipe.vocab_size")):
        raise ConfigError(f"{option}: --vocab {arguments.vocab} already is a vocabulary; leave one of them out")
    out = arguments.out or data_path(system.data.path)
    if arguments.vocab:
        _warn_of_case(arguments.vocab, progress)
    texts: Texts = {"text": arguments.text, "wiki": arguments.wiki}
    return out, *prepared(out, texts, recipe_of(system), arguments.vocab, progress)


def recipe_of(system: "System") -> "TextRecipe":
    """Return how a system makes its samples. Raises ConfigError if it has no data.recipe."""
    from bertbench.data.text.prepare import TextRecipe

    settings = system.data.recipe
    if settings is None:
        raise ConfigError(
            f"{system.name}: has no data.recipe, which defines how to make samples; add one, or name a system with one"
        )
    return TextRecipe(
        options=settings.options(system.model.max_positions),
        vocab_size=settings.vocab_size,
        held_out_fraction=settings.held_out_fraction,
        held_out_samples=settings.held_out_samples,
        seed=settings.seed,
    )


def _report_dataset(arguments: argparse.Namespace, progress: "Progress", made: Made) -> None:
    """Print what a dataset holds, and whether it existed before."""
    folder, manifest, existed = made
    samples = ", ".join(f"{split.samples:,} {name} samples" for name, split in manifest.splits().items())
    progress.message(f"{'reusing' if existed else 'wrote'} {shown_path(folder)}: {samples}")
    emit(arguments, {"path": str(folder), "reused": existed, **asdict(manifest)})


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to check."""
    add_path(parser, "folder", "DIR", "a dataset, or a folder with MLCommons' files, subfolders included")


def verify(arguments: argparse.Namespace) -> int:
    """Check a dataset, or a download of MLCommons' files: 0 without problems, 1 with one line per problem.

    For a dataset, it recomputes checksums and counts.
    """
    from bertbench.data.store.verify import verify as verified

    if _is_download(arguments.folder):
        return _verify_download(arguments)
    with Progress() as progress:
        problems, counts = verified(arguments.folder, progress)
    splits = {name: asdict(split) for name, split in counts.items()}
    content = {"path": str(arguments.folder), "ok": not problems, "problems": problems, "splits": splits}
    samples = ", ".join(f"{split.samples:,} {name} samples" for name, split in counts.items())
    whole = f"{arguments.folder}: {samples}, all valid and as the manifest says"
    emit(arguments, content, "" if problems else whole)
    say(*problems)
    return 1 if problems else 0


def _is_download(folder: Path) -> bool:
    """Return whether to check a folder as a download, because it isn't a dataset."""
    from bertbench.data.store.manifest import MANIFEST_NAME

    return not exists(folder / MANIFEST_NAME, DataError) and not (folder / "train").is_dir()


def _verify_download(arguments: argparse.Namespace) -> int:
    from bertbench.data.download import check_download

    folder = arguments.folder
    if not folder.is_dir():
        raise DataError(f"{folder}: found no folder, expected a dataset's folder or the folder of a download")
    with Progress() as progress:
        check = check_download(folder, progress)
    is_ok = not check.missing and not check.wrong
    lines = [f"{len(check.right)} files right, {len(check.missing)} missing, {len(check.wrong)} wrong"]
    if check.missing:
        names = ", ".join(check.missing[:_SHOWN]) + (", ..." if len(check.missing) > _SHOWN else "")
        lines.append(f"missing: {names}; download them again")
    lines += [f"not unpacked: {line}" for line in check.packed]
    lines += [f"wrong: {line}" for line in check.wrong]
    emit(arguments, {"path": str(folder), "ok": is_ok, **asdict(check)}, *lines)
    return 0 if is_ok else 1


def add_shuffle_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dataset, the seed, the shards and the folder to write."""
    add_path(parser, "folder", "DIR", "a prepared dataset with training samples")
    parser.add_argument(
        "--seed", type=seed, required=True, help="seed of the order; the same seed gives the same order"
    )
    add_number(parser, "--shards", "K", "number of shards to write", required=True)
    add_path(parser, "--out", "DIR2", "folder to make", required=True)


def shuffle(arguments: argparse.Namespace) -> int:
    """Write the same samples in random order over new shards, or report that the dataset exists already."""
    from bertbench.data.store.shuffle import shuffle as shuffled

    with Progress() as progress:
        manifest, existed = shuffled(arguments.folder, arguments.out, arguments.seed, arguments.shards, progress)
        _report_dataset(arguments, progress, (arguments.out, manifest, existed))
    return 0


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dataset."""
    add_path(parser, "folder", "DIR", "dataset to describe")


def show(arguments: argparse.Namespace) -> int:
    """Print a dataset's counts and a histogram of its lengths."""
    from bertbench.data.store.summary import drawn, summarize

    summary = summarize(arguments.folder)
    emit(arguments, summary, drawn(summary))
    return 0
