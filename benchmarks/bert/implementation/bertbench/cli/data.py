"""Commands about datasets: make them from text or published samples, check, shuffle and describe them."""

import argparse
from collections.abc import Callable
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
from bertbench.common.reads import Reads

if TYPE_CHECKING:
    from bertbench.common.progress import Progress
    from bertbench.config import System
    from bertbench.data.formats.convert import Format
    from bertbench.data.store.manifest import Manifest
    from bertbench.data.text.prepare import TextRecipe

_SYSTEM = "cpu_demo"
_SHOWN = 5  # missing files
_SHARD_SAMPLES = 1 << 15  # MLPerf's 157 million samples make 4,783 shards, of at most 0.6 GiB of memory each
_CONVERSION_ONLY = ("vocab_size", "split", "shard_samples")
_MLPERF_ONLY = ("dupe_factor", "seed", "workers", "select_eval")

Made = tuple[Path, "Manifest", bool]
"""A dataset's folder, its manifest, and whether it existed before."""


def add_prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the text or the published samples, the recipe and the folder of the dataset."""
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
    samples = parser.add_argument_group("published samples instead of text (docs/formats.md)")
    source = samples.add_mutually_exclusive_group()
    hdf5 = "HDF5 files or folders of them, in the fixed, varlength or packed layout"
    add_path(source, "--from-hdf5", "PATH", hdf5, nargs="+")
    add_path(source, "--from-tfrecord", "PATH", "TFRecord files or folders of them", nargs="+")
    add_number(samples, "--vocab-size", "N", "size of the samples' vocabulary, if --vocab isn't given")
    samples.add_argument("--split", choices=["train", "eval"], help="split that the samples belong to (default train)")
    add_number(samples, "--shard-samples", "N", f"samples per shard (default {_SHARD_SAMPLES:,})")
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
    """Prepare the dataset, or report that it exists already."""
    from bertbench.common.progress import Progress

    converts = bool(arguments.from_hdf5 or arguments.from_tfrecord)
    follows_mlperf = arguments.recipe == "mlperf"
    if not converts:
        _refuse(arguments, _CONVERSION_ONLY, "published samples: --from-hdf5 or --from-tfrecord")
    if not follows_mlperf:
        _refuse(arguments, _MLPERF_ONLY, "--recipe mlperf; otherwise use --set data.recipe.NAME=VALUE")
    if converts and follows_mlperf:
        raise ConfigError("--recipe mlperf makes samples from text; leave it out, or --from-hdf5 and --from-tfrecord")
    if (converts or follows_mlperf) and (arguments.system or arguments.overrides):
        how = "published samples are" if converts else "--recipe mlperf is"
        raise ConfigError(f"--system and --set: {how} not made by a system's data.recipe; leave them out")
    make: Callable[[argparse.Namespace, Progress], Made]
    if converts:
        make = _from_published
    elif follows_mlperf:
        make = _by_mlperf
    else:
        make = _by_system
    with Progress() as progress:
        _report_dataset(arguments, progress, make(arguments, progress))
    return 0


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], expected: str) -> None:
    """Raise ConfigError if one of these options, which go only with `expected`, is given."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')}: only with {expected}")


def _from_published(arguments: argparse.Namespace, progress: "Progress") -> Made:
    from bertbench.data.formats.convert import Conversion, convert_samples, input_files
    from bertbench.data.text.vocabulary import Vocabulary

    if arguments.text or arguments.wiki or arguments.out is None:
        raise ConfigError("published samples: give --out DIR, and neither --text nor --wiki")
    has_size = arguments.vocab_size is not None
    has_file = arguments.vocab is not None
    if has_size == has_file:
        raise ConfigError("expected one of --vocab-size N and --vocab FILE: ids are checked against it; give one")
    file_format: Format = "hdf5" if arguments.from_hdf5 else "tfrecord"
    vocabulary = Vocabulary.read(arguments.vocab) if arguments.vocab else None
    conversion = Conversion(
        format=file_format,
        files=input_files(arguments.from_hdf5 or arguments.from_tfrecord, file_format, progress),
        split=arguments.split or "train",
        vocab_size=len(vocabulary) if vocabulary else arguments.vocab_size,
        shard_samples=arguments.shard_samples or _SHARD_SAMPLES,
        vocabulary=vocabulary,
    )
    return arguments.out, *convert_samples(arguments.out, conversion, progress)


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
    from bertbench.common.paths import data_folder
    from bertbench.data.text.prepare import Texts
    from bertbench.data.text.prepare import prepare as prepared

    arguments.system = arguments.system or _SYSTEM
    system = system_of(arguments)
    if arguments.vocab and (option := system.given.get("data.recipe.vocab_size")):
        raise ConfigError(f"{option}: --vocab {arguments.vocab} already is a vocabulary; leave one of them out")
    out = arguments.out or data_folder(system.data.path)
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
    from bertbench.common.paths import shown_path

    folder, manifest, existed = made
    samples = ", ".join(f"{split.samples:,} {name} samples" for name, split in manifest.splits().items())
    progress.message(f"{'reusing' if existed else 'wrote'} {shown_path(folder)}: {samples}")
    emit(arguments.json, {"path": str(folder), "reused": existed, **asdict(manifest)})


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to check."""
    add_path(parser, "folder", "DIR", "a dataset, or a folder with MLCommons' files, subfolders included")


def verify(arguments: argparse.Namespace) -> int:
    """Check a dataset, or a download of MLCommons' files: 0 without problems, 1 with one line per problem.

    For a dataset, it recomputes checksums and counts.
    """
    from bertbench.common.progress import Progress
    from bertbench.data.store.verify import verify as verified

    if _is_download(arguments.folder):
        return _verify_download(arguments.folder, arguments.json)
    with Progress() as progress:
        problems, counts = verified(arguments.folder, progress)
    splits = {name: asdict(split) for name, split in counts.items()}
    content = {"path": str(arguments.folder), "ok": not problems, "problems": problems, "splits": splits}
    samples = ", ".join(f"{split.samples:,} {name} samples" for name, split in counts.items())
    whole = f"{arguments.folder}: {samples}, all valid and as the manifest says"
    emit(arguments.json, content, "" if problems else whole)
    say(*problems)
    return 1 if problems else 0


def _is_download(folder: Path) -> bool:
    """Return whether to check a folder as a download, because it isn't a dataset."""
    from bertbench.common.system_faults import exists
    from bertbench.data.store.manifest import MANIFEST_NAME

    return not exists(folder / MANIFEST_NAME, DataError) and not (folder / "train").is_dir()


def _verify_download(folder: Path, as_json: str) -> int:
    from bertbench.common.progress import Progress
    from bertbench.data.download import check_download

    if not folder.is_dir():
        raise DataError(f"{folder}: found no folder, expected a dataset's folder or the folder of a download")
    with Progress() as progress:
        check = check_download(folder, progress)
    is_ok = not check.missing and not check.wrong
    lines = [f"{len(check.right)} files right, {len(check.missing)} missing, {len(check.wrong)} wrong"]
    if check.missing:
        names = ", ".join(check.missing[:_SHOWN]) + (", ..." if len(check.missing) > _SHOWN else "")
        lines.append(f"missing: {names}; download them again")
    lines += [f"wrong: {line}" for line in check.wrong]
    emit(as_json, {"path": str(folder), "ok": is_ok, **asdict(check)}, *lines)
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
    from bertbench.common.progress import Progress
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
    emit(arguments.json, summary, drawn(summary))
    return 0
