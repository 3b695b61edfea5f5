"""`bertbench data prepare`: make a dataset folder from text."""

import argparse
from dataclasses import asdict
from pathlib import Path

from bertbench.commands import (
    add_number,
    add_path,
    add_system_arguments,
    data_convert,
    emit,
    seed,
    system_of,
)
from bertbench.common.errors import ConfigError
from bertbench.common.paths import data_folder
from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.data.store.manifest import Manifest
from bertbench.data.text.mlperf import MlperfRecipe, prepare_mlperf
from bertbench.data.text.prepare import TextRecipe, Texts, prepare

_SYSTEM = "cpu_demo"
_CONVERSION_ONLY = ("vocab_size", "split", "shard_samples")
_MLPERF_ONLY = ("dupe_factor", "seed", "workers", "select_eval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the text, the recipe and the folder of the dataset."""
    text = parser.add_argument_group("text (default: the documentation of the installed Python)")
    add_path(text, "--text", "FILE", "one sentence a line, a blank line between articles", nargs="+", default=[])
    add_path(text, "--wiki", "FILE", "WikiExtractor output, <doc> blocks", nargs="+", default=[])
    add_path(parser, "--vocab", "FILE", "vocab.txt (default: train a vocabulary on the text)")
    add_path(parser, "--out", "DIR", "folder to make (default: the system's data.path)")
    data_convert.add_arguments(parser)
    parser.add_argument("--recipe", choices=["system", "mlperf"], default="system", help="`system`: data.recipe of --system, with documents held out; `mlperf`: exactly the reference's samples")  # fmt: skip  # noqa: E501
    parser.add_argument("--system", help=f"system with data.recipe and sizes (default {_SYSTEM})")
    add_system_arguments(parser)
    mlperf = parser.add_argument_group("--recipe mlperf (needs --text, --vocab and --out)")
    add_number(mlperf, "--dupe-factor", "N", "number of times to use each article (default 10)")
    mlperf.add_argument("--seed", type=seed, help="random_seed of the reference (default 12345)")
    add_number(mlperf, "--workers", "N", "text files to process in parallel (default 1)")
    add_number(mlperf, "--select-eval", "N", "keep N evenly spaced samples as the evaluation set: 10000 in MLPerf")


def run(arguments: argparse.Namespace) -> int:
    """Prepare the dataset, or report that it exists already."""
    converts, mlperf = bool(arguments.from_hdf5 or arguments.from_tfrecord), arguments.recipe == "mlperf"
    for names, fits, expected in (
        (_CONVERSION_ONLY, converts, "published samples: --from-hdf5 or --from-tfrecord"),
        (_MLPERF_ONLY, mlperf, "--recipe mlperf; else use --set data.recipe.NAME=VALUE"),
    ):
        given = [name for name in names if getattr(arguments, name) is not None]
        if given and not fits:
            raise ConfigError(f"--{given[0].replace('_', '-')}: only with {expected}")
    if converts and mlperf:
        raise ConfigError("--recipe mlperf makes samples from text; leave it out, or --from-hdf5 and --from-tfrecord")
    if (converts or mlperf) and (arguments.system or arguments.overrides):
        how = "published samples are" if converts else "--recipe mlperf is"
        raise ConfigError(f"--system and --set: {how} not made by a system's data.recipe; leave them out")
    with Progress() as progress:
        make = data_convert.make if converts else _mlperf if mlperf else _of_system
        report(arguments, progress, *make(arguments, progress))
    return 0


def report(arguments: argparse.Namespace, progress: Progress, out: Path, manifest: Manifest, existed: bool) -> None:
    """Print what a dataset holds, and whether it was there before."""
    samples = ", ".join(f"{split.samples:,} {name} samples" for name, split in manifest.splits().items())
    progress.message(f"{'reusing' if existed else 'wrote'} {out}: {samples}")
    emit(arguments.json, {"path": str(out), "reused": existed, **asdict(manifest)})


def _mlperf(arguments: argparse.Namespace, progress: Progress) -> tuple[Path, Manifest, bool]:
    out, text, vocab = arguments.out, tuple(arguments.text), arguments.vocab
    if not (text and vocab and out) or arguments.wiki:
        raise ConfigError("--recipe mlperf: give --text FILE..., --vocab vocab.txt and --out DIR, and no --wiki")
    given = {name: value for name in _MLPERF_ONLY if (value := getattr(arguments, name)) is not None}
    workers = given.pop("workers", 1)
    return out, *prepare_mlperf(out, text, vocab, MlperfRecipe(**given), workers, progress)


def _of_system(arguments: argparse.Namespace, progress: Progress) -> tuple[Path, Manifest, bool]:
    arguments.system = arguments.system or _SYSTEM
    system = system_of(arguments)
    if arguments.vocab and (option := system.given.get("data.recipe.vocab_size")):
        raise ConfigError(f"{option}: --vocab {arguments.vocab} already is a vocabulary; leave one of them out")
    out = arguments.out or data_folder(system.data.path)
    texts: Texts = {"text": arguments.text, "wiki": arguments.wiki}
    return out, *prepare(out, texts, recipe_of(system), arguments.vocab, progress)


def recipe_of(system: System) -> TextRecipe:
    """Return how a system makes its samples. Raises ConfigError if it has no data.recipe."""
    settings = system.data.recipe
    if settings is None:
        raise ConfigError(
            f"{system.name}: has no data.recipe, which defines how to make samples; add one, or name a system with one"
        )
    others = ("vocab_size", "held_out_fraction", "held_out_samples", "shard_samples", "seed")
    return TextRecipe(settings.options(system.model.max_positions), *(getattr(settings, name) for name in others))
