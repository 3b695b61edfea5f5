"""List the logical tensors of BERT with their names here, in TensorFlow and in Hugging Face's files.

Import, export and the MLPerf log, which names the TensorFlow variables, share this list. Our parameters differ in one
point: query, key and value are the rows of one matrix `qkv`, in this order. Matrices here are [out, in].
Names: google-research/bert modeling.py; transformers' BertForPreTraining.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from bertbench.model.shape import BertShape

if TYPE_CHECKING:  # the list of layouts counts tensors without loading torch
    import torch

_WORDS, _OUTPUT_BIAS = "embeddings.word.weight", "masked_lm.bias"
VOCABULARY_ROWS = (_WORDS, _OUTPUT_BIAS)
"""Parameters with one row per vocabulary entry, which many programs pad."""
_MULTIPLES = range(8, 1025, 8)
"""Programs pad the rows to a multiple of one of these: 8 for tensor cores, 128 on each of 8 ranks in Megatron-LM."""


class Piece(NamedTuple):
    """One logical tensor: the whole of a parameter, or a third of `qkv`."""

    parameter: str
    tensorflow: str
    hugging_face: str
    shape: tuple[int, ...]
    """The shape in our model and in Hugging Face's, without padding."""

    @property
    def transposed(self) -> bool:
        """Return whether TensorFlow 1 stores it transposed."""
        return self.tensorflow.endswith("/kernel")


def has_padding(rows: int, entries: int) -> bool:
    """Return whether `rows` are the entries of a vocabulary, padded to a multiple; else it is another vocabulary."""
    padding = rows - entries
    return padding > 0 and any(rows % multiple == 0 for multiple in _MULTIPLES if multiple > padding)


def without_padding(piece: Piece, stored: tuple[int, ...]) -> slice:
    """Return the rows of a stored tensor that are a piece's: all, unless rows above the vocabulary are padding."""
    is_padded = piece.parameter in VOCABULARY_ROWS and has_padding(stored[0], piece.shape[0])
    return slice(piece.shape[0]) if is_padded else slice(None)


def assemble(parts: Iterable[Piece], read: Callable[[Piece], torch.Tensor], vocab_size: int) -> dict[str, torch.Tensor]:
    """Join the tensors that `read` returns into our parameters, and pad the vocabulary's rows with zeros."""
    import torch  # noqa: PLC0415 - see above

    tensors: dict[str, list[torch.Tensor]] = {}
    for piece in parts:
        tensors.setdefault(piece.parameter, []).append(read(piece))
    for name in VOCABULARY_ROWS:
        (rows,) = tensors[name]
        tensors[name].append(rows.new_zeros(vocab_size - len(rows), *rows.shape[1:]))
    parameters = {}
    for name, pieces_of_parameter in tensors.items():
        # torch.cat would copy even a single tensor
        parameters[name] = torch.cat(pieces_of_parameter) if len(pieces_of_parameter) > 1 else pieces_of_parameter[0]
    return parameters


def take_apart(parts: Iterable[Piece], tensors: dict[str, torch.Tensor]) -> dict[Piece, torch.Tensor]:
    """Invert `assemble`: return each piece, without padding, in its own memory."""
    taken: dict[str, int] = {}
    answer = {}
    for piece in parts:
        first = taken.get(piece.parameter, 0)
        taken[piece.parameter] = first + piece.shape[0]
        answer[piece] = tensors[piece.parameter][first : taken[piece.parameter]].clone()
    return answer


def pieces(shape: BertShape) -> Iterator[Piece]:
    """Yield all tensors of a model whose vocab_size is the real vocabulary, in TensorFlow's order."""
    hidden, inner = shape.hidden_size, shape.feed_forward_size
    for ours, name, rows in (
        (_WORDS, "word", shape.vocab_size),
        ("embeddings.position.weight", "position", shape.max_positions),
        ("embeddings.token_type.weight", "token_type", shape.token_types),
    ):
        embeddings = f"{name}_embeddings"
        yield Piece(ours, f"bert/embeddings/{embeddings}", f"bert.embeddings.{embeddings}.weight", (rows, hidden))
    yield from _layer("embeddings.norm", "bert/embeddings/LayerNorm", hidden)
    for number in range(shape.layers):
        ours, theirs = f"layers.{number}", f"bert/encoder/layer_{number}"
        for name in ("query", "key", "value"):
            yield from _layer(f"{ours}.qkv", f"{theirs}/attention/self/{name}", hidden, hidden)
        yield from _layer(f"{ours}.attention_output", f"{theirs}/attention/output/dense", hidden, hidden)
        yield from _layer(f"{ours}.attention_norm", f"{theirs}/attention/output/LayerNorm", hidden)
        yield from _layer(f"{ours}.feed_forward_in", f"{theirs}/intermediate/dense", inner, hidden)
        yield from _layer(f"{ours}.feed_forward_out", f"{theirs}/output/dense", hidden, inner)
        yield from _layer(f"{ours}.feed_forward_norm", f"{theirs}/output/LayerNorm", hidden)
    yield from _layer("pooler", "bert/pooler/dense", hidden, hidden)
    yield Piece(_OUTPUT_BIAS, "cls/predictions/output_bias", "cls.predictions.bias", (shape.vocab_size,))
    yield from _layer("masked_lm.dense", "cls/predictions/transform/dense", hidden, hidden)
    yield from _layer("masked_lm.norm", "cls/predictions/transform/LayerNorm", hidden)
    sentence = "cls/seq_relationship"
    yield Piece("next_sentence.weight", f"{sentence}/output_weights", "cls.seq_relationship.weight", (2, hidden))
    yield Piece("next_sentence.bias", f"{sentence}/output_bias", "cls.seq_relationship.bias", (2,))


def _layer(ours: str, tensorflow: str, *shape: int) -> Iterator[Piece]:
    """Yield weight and bias of a dense layer [out, in], or of a LayerNorm [size]."""
    theirs = tensorflow.replace("/layer_", "/layer/").replace("/", ".")
    is_norm = theirs.endswith("LayerNorm")
    weight = "gamma" if is_norm else "kernel"
    bias = "beta" if is_norm else "bias"
    yield Piece(f"{ours}.weight", f"{tensorflow}/{weight}", f"{theirs}.weight", shape)
    yield Piece(f"{ours}.bias", f"{tensorflow}/{bias}", f"{theirs}.bias", shape[:1])
