"""Commands about files of weights: read, list and write them."""

import argparse
from pathlib import Path

from bertbench.cli.arguments import (
    WEIGHTS_HELP,
    add_number,
    add_path,
    emit,
    say,
)
from bertbench.common.errors import ConfigError


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoint to read and the file to write."""
    origin = parser.add_mutually_exclusive_group(required=True)
    add_path(
        origin, "--from-tf", "PREFIX",
        "TensorFlow 1 checkpoint, for example model.ckpt-28252 for its .index and .data files",
    )  # fmt: skip
    add_path(
        origin, "--from-hf", "DIR",
        "folder with a BERT's config.json and model.safetensors (or its shards and index), or one of these files",
    )  # fmt: skip
    add_path(parser, "--config", "FILE", "bert_config.json; with --from-tf")
    add_path(parser, "--out", "FILE", "weights file to write", required=True)
    add_number(
        parser, "--vocab-size", "N",
        "rows of the embedding matrix; rows without an entry are zero (default: the next multiple of 8)",
    )  # fmt: skip


def import_checkpoint(arguments: argparse.Namespace) -> int:
    """Convert a TensorFlow or Hugging Face checkpoint to our weights file; then list which tensors are used."""
    from bertbench.checkpoint.conversion import convert_checkpoint, padded_vocabulary
    from bertbench.checkpoint.hugging_face import open_hugging_face
    from bertbench.checkpoint.safetensors_files import check_new
    from bertbench.checkpoint.tensorflow.reader import open_tensorflow

    from_tensorflow = arguments.from_tf is not None
    has_config = arguments.config is not None
    if from_tensorflow != has_config:
        raise ConfigError("--from-tf and --config go together: --config names the checkpoint's bert_config.json")
    check_new(arguments.out)
    if from_tensorflow:
        prefix: Path = arguments.from_tf
        origin = open_tensorflow(prefix.parent / prefix.name.removesuffix(".index"), arguments.config)
    else:
        origin = open_hugging_face(arguments.from_hf)
    rows = padded_vocabulary(origin.shape.vocab_size, arguments.vocab_size)
    convert_checkpoint(origin, arguments.out, rows)
    counts = f"{len(origin.used)} tensors used, {len(origin.skipped)} skipped"
    lines = [
        *(f"used     {name} -> {parameter}" for name, parameter in origin.used.items()),
        *(f"skipped  {name}" for name in origin.skipped),
        counts,
    ]
    content = {
        "source": origin.source,
        "out": str(arguments.out),
        "used": origin.used,
        "skipped": origin.skipped,
        "notes": list(origin.notes),
        "real_vocab_size": origin.shape.vocab_size,
        "vocab_size": rows,
    }
    emit(arguments, content, *lines)
    for note in origin.notes:
        say(f"note: {note}")
    say(f"wrote {arguments.out}: {counts}, {rows:,} vocabulary rows")
    return 0


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the weights."""
    add_path(parser, "weights", "PATH", WEIGHTS_HELP)


def show(arguments: argparse.Namespace) -> int:
    """Print the tensors of weights with their shapes, then the metadata."""
    from bertbench.checkpoint.run_weights import open_weights

    weights = open_weights(arguments.weights)
    content = {
        "path": str(weights.path),
        "source": weights.source,
        "shape": weights.shape,
        "real_vocab_size": weights.real_vocab_size,
        "parameters": weights.parameters,
        "tensors": weights.tensors,
    }
    lines = []
    for name, sizes in weights.tensors.items():
        lines.append(f"{name:<40} {' x '.join(f'{size:,}' for size in sizes)}")
    lines += [
        f"{len(weights.tensors)} tensors, {weights.parameters:,} parameters, from {weights.source}",
        f"vocabulary of {weights.real_vocab_size:,}, padded to {weights.shape.vocab_size:,} rows",
    ]
    emit(arguments, content, *lines)
    return 0


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the weights to read and the folder to write."""
    add_path(parser, "weights", "PATH", WEIGHTS_HELP)
    add_path(
        parser, "--to-hf", "DIR",
        "folder to make, with config.json and model.safetensors for transformers' BertForPreTraining", required=True,
    )  # fmt: skip


def export(arguments: argparse.Namespace) -> int:
    """Write weights as a Hugging Face model, without the vocabulary's padding."""
    from bertbench.checkpoint.hugging_face import export as exported
    from bertbench.checkpoint.run_weights import open_weights

    weights = open_weights(arguments.weights)
    exported(weights, arguments.to_hf)
    emit(arguments, {"out": str(arguments.to_hf), "vocab_size": weights.real_vocab_size})
    say(f"wrote {arguments.to_hf}: vocabulary of {weights.real_vocab_size:,}, from {weights.source}")
    return 0
