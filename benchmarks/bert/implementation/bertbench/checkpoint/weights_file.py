"""Read and write our weights file: the model's parameters in one safetensors file, described by its metadata.

A fine-tuned model also has the tensors of its span head.
The metadata are strings: format, shape (JSON of BertShape), real_vocab_size (rows of real tokens), source.
"""

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from bertbench.checkpoint.safetensors_files import opened, save_tensors, writing
from bertbench.common.errors import CheckpointError
from bertbench.data.store.manifest import VOCAB_NAME, file_sha256
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.model.span import head_tensors

FORMAT = "bertbench-weights-1"
_DTYPE = "F32"
_MAKE = "make one with `bertbench checkpoint import`"


@dataclass(frozen=True)
class Weights:
    """A weights file with a valid header; the tensors are still on disk."""

    path: Path
    shape: BertShape
    real_vocab_size: int
    """Entries of the vocabulary; the rows above, up to shape.vocab_size, are padding."""
    source: str
    """Where the weights come from, for people to read."""
    tensors: dict[str, tuple[int, ...]]
    """Shapes by name, in the model's order."""

    @classmethod
    def open(cls, path: Path) -> "Weights":
        """Read the header only, which is fast for a file of any size.

        Raises CheckpointError if it can't be read, is not a weights file, or contradicts its metadata.
        """
        with opened(path, _MAKE) as file:
            metadata = file.metadata() or {}
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            tensors = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{path}: found format {metadata.get('format')!r}, expected {FORMAT!r}; {_MAKE}")
        try:
            content = json.loads(metadata["shape"])
            shape = BertShape(**{field.name: content[field.name] for field in fields(BertShape)})
            real, source = int(metadata["real_vocab_size"]), metadata["source"]
            expected = expected_tensors(shape, tensors)
        except (ValueError, TypeError, KeyError, RuntimeError) as error:  # RuntimeError: torch on impossible sizes
            raise CheckpointError(f"{path}: its metadata is damaged ({error!r}); {_MAKE}") from error
        _compare(path, tensors, expected)
        return cls(path, shape, real, source, expected)

    @property
    def parameters(self) -> int:
        """Return the number of values in all tensors."""
        return sum(torch.Size(shape).numel() for shape in self.tensors.values())

    def check_fits(self, shape: BertShape) -> None:
        """Raise CheckpointError if a model of that shape can't take these weights."""
        sizes = {name: size for name, size in asdict(shape).items() if isinstance(size, int)}  # rates may differ
        differing_sizes = ", ".join(
            f"{name} {getattr(self.shape, name)} (the model has {size})"
            for name, size in sizes.items()
            if getattr(self.shape, name) != size
        )
        if differing_sizes:
            raise CheckpointError(
                f"{self.path}: found {differing_sizes}; set model.* to the file's sizes, or name another file"
            )

    def read(self) -> dict[str, Tensor]:
        """Return all tensors, on the CPU."""
        return self.read_some(self.tensors)

    def read_some(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the named tensors, on the CPU."""
        with opened(self.path, _MAKE) as file:
            return {name: file.get_tensor(name) for name in names}

    def put_into(self, model: Bert) -> None:
        """Load these weights into those tensors of a model that have memory, and skip those on the meta device.

        Raises CheckpointError if they can't be read or belong to a model of another shape.
        """
        self.check_fits(model.shape)
        self.copy_into(model.state_dict())

    def copy_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the file's tensors into those of the same names, except tensors on the meta device."""
        wanted = [name for name, tensor in tensors.items() if name in self.tensors and not tensor.is_meta]
        for name, read in self.read_some(wanted).items():
            tensors[name].copy_(read)

    @property
    def vocabulary(self) -> Path:
        """Return the path of the vocab.txt that a run writes next to its weights."""
        return self.path.parent / VOCAB_NAME

    def sha256(self) -> str:
        """Return the checksum of the file."""
        return file_sha256(self.path)


def write_weights(path: Path, tensors: dict[str, Tensor], shape: BertShape, real_vocab_size: int, source: str) -> None:
    """Write parameters, named as in the model's state_dict, to a new file, completely or not at all.

    Raises CheckpointError if the file exists or can't be written, or if a tensor isn't the model's.
    """
    shapes = {name: (tuple(tensor.shape), _DTYPE) for name, tensor in tensors.items()}
    _compare(path, shapes, expected_tensors(shape, shapes))
    metadata = {
        "format": FORMAT,
        "shape": json.dumps(asdict(shape)),
        "real_vocab_size": str(real_vocab_size),
        "source": source,
    }
    with writing(path) as unfinished:
        save_tensors(tensors, unfinished, metadata)


def expected_tensors(shape: BertShape, found: Container[str] = ()) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a model's parameters, and of the span head if `found` has any of them."""
    with torch.device("meta"):
        tensors = {name: tuple(tensor.shape) for name, tensor in Bert(shape).state_dict().items()}
    head = head_tensors(shape)
    return tensors | head if any(name in found for name in head) else tensors


def _compare(path: Path, found: dict[str, tuple[tuple[int, ...], str]], expected: dict[str, tuple[int, ...]]) -> None:
    for name, shape in expected.items():
        if name not in found:
            raise CheckpointError(f"{path}: {name}: is missing, expected shape {shape}; {_MAKE}")
        if found[name] != (shape, _DTYPE):
            there, dtype = found[name]
            raise CheckpointError(f"{path}: {name}: found {dtype} of shape {there}, expected F32 of {shape}; {_MAKE}")
    unknown = sorted(set(found) - set(expected))
    if unknown:
        raise CheckpointError(f"{path}: {unknown[0]}: is not a tensor of this model; {_MAKE}")
