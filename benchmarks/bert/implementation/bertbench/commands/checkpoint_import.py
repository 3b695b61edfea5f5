"""`bertbench checkpoint import`: convert a TensorFlow or Hugging Face checkpoint to our weights file."""

import argparse
from pathlib import Path

from bertbench.checkpoint.conversion import convert, padded_vocabulary
from bertbench.checkpoint.hugging_face import open_hugging_face
from bertbench.checkpoint.tensorflow.reader import open_tensorflow
from bertbench.commands import add_number, add_path, emit, say
from bertbench.common.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoint to read and the file to write."""
    origin = parser.add_mutually_exclusive_group(required=True)
    add_path(
        origin,
        "--from-tf",
        "PREFIX",
        "TensorFlow 1 or 2 checkpoint, for example model.ckpt-28252 for its .index and .data files",
    )
    add_path(
        origin,
        "--from-hf",
        "DIR",
        "folder with the config.json and model.safetensors of a BERT, whole or in shards; or its file",
    )
    add_path(parser, "--config", "FILE", "bert_config.json; with --from-tf")
    add_path(parser, "--out", "FILE", "weights file to write", required=True)
    add_number(
        parser,
        "--vocab-size",
        "N",
        "rows of the embedding matrix; rows without an entry are zero (default: the next multiple of 8)",
    )


def run(arguments: argparse.Namespace) -> int:
    """List each tensor's use, then convert."""
    if (arguments.from_tf is None) != (arguments.config is None):
        raise ConfigError("--config needs --from-tf: it names the checkpoint's bert_config.json")
    if arguments.from_tf is not None:
        prefix: Path = arguments.from_tf
        origin = open_tensorflow(prefix.with_name(prefix.name.removesuffix(".index")), arguments.config)
    else:
        origin = open_hugging_face(arguments.from_hf)
    rows = padded_vocabulary(origin.shape.vocab_size, arguments.vocab_size)
    counts = f"{len(origin.used)} tensors used, {len(origin.skipped)} skipped, {len(origin.missing)} missing"
    lines = [
        *(f"used     {name} -> {parameter}" for name, parameter in origin.used.items()),
        *(f"skipped  {name}" for name in origin.skipped),
        *(f"missing  {name}" for name in origin.missing),
        counts,
    ]
    content = {
        "source": origin.source,
        "out": str(arguments.out),
        "used": origin.used,
        "skipped": origin.skipped,
        "missing": origin.missing,
        "notes": list(origin.notes),
        "real_vocab_size": origin.shape.vocab_size,
        "vocab_size": rows,
    }
    emit(arguments.json, content, *lines)
    for note in origin.notes:
        say(f"note: {note}")
    convert(origin, arguments.out, rows)
    say(f"wrote {arguments.out}: {counts}, {rows:,} vocabulary rows")
    return 0
