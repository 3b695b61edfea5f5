"""`bertbench data prepare`: text in, a dataset folder out."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from bertbench.commands import add_system_arguments, data_convert
from bertbench.config import load_system
from bertbench.data.prepare import Recipe, Source, prepare
from bertbench.errors import ConfigError
from bertbench.paths import data_folder
from bertbench.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where text comes from, and where the dataset goes."""
    parser.add_argument(
        "--system", default="cpu_demo", help="system whose data.recipe and sizes are used (default cpu_demo)"
    )
    parser.add_argument(
        "--text",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="text, one sentence a line, a blank line between articles",
    )
    parser.add_argument(
        "--wiki", nargs="+", type=Path, default=[], metavar="FILE", help="WikiExtractor output, <doc> blocks"
    )
    parser.add_argument(
        "--vocab", type=Path, metavar="FILE", help="vocab.txt to use; else a vocabulary is trained on the text"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to make (default: the system's data.path)")
    data_convert.add_arguments(parser)
    add_system_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prepare, or say that it is there already."""
    if data_convert.asked(arguments):
        return data_convert.run(arguments)
    system = load_system(arguments.system, arguments.overrides)
    settings = system.data.recipe
    if settings is None:
        raise ConfigError(
            f"{system.name}: has no data.recipe, which says how to make samples; add one, or name a system that has it"
        )
    recipe = Recipe(
        options=settings.options(system.model.max_positions),
        vocab_size=settings.vocab_size,
        held_out_fraction=settings.held_out_fraction,
        held_out_samples=settings.held_out_samples,
        shard_samples=settings.shard_samples,
        seed=settings.seed,
    )
    out = arguments.out or data_folder(system.data.path)
    source = Source(tuple(arguments.text), tuple(arguments.wiki))
    with Progress() as progress:
        manifest, existed = prepare(out, source, recipe, arguments.vocab, progress)
        done = "reusing" if existed else "wrote"
        samples = {name: split.samples for name, split in manifest.splits().items()}
        progress.say(f"{done} {out}: " + ", ".join(f"{count:,} {name} samples" for name, count in samples.items()))
    if arguments.json:
        print(json.dumps({"path": str(out), "reused": existed, **asdict(manifest)}, indent=2))
    return 0
