"""Recognise pickles, in which PyTorch and DeepSpeed save checkpoints, by their content. They are never loaded.

torch.save writes a zip archive whose data.pkl is a pickle; before version 1.6, it wrote a bare pickle.
"""

import zipfile
from pathlib import Path

from bertbench.common.errors import CheckpointError

_NAMES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
"""What Hugging Face calls its pickles and their index, whatever is in them."""
_PROTOCOLS = range(2, 6)
_SAFETENSORS_HEADER = 8  # bytes of its length, which may look like the start of a pickle; then the header itself, JSON
_DEEPSPEED = ("mp_rank_", "zero_pp_rank_", "bf16_zero_pp_rank_", "global_step")
_SHOWN = 5


def refuse_pickles(place: Path, remedy: str) -> None:
    """Raise CheckpointError if `place` is a pickle, or a folder with pickles; `remedy` says how to save a model."""
    paths = [place]
    if place.is_dir():
        paths = sorted([*place.glob("*"), *place.glob("*/*")])  # DeepSpeed's are in a subfolder
    found = [path for path in paths if path.is_file() and _is_pickle(path)]
    if not found:
        return
    others = ""
    if len(found) > 1:
        names = [str(path.relative_to(place)) for path in found[1:]]
        others = f" (as are {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''})"
    if any(part.startswith(_DEEPSPEED) for path in found for part in path.parts[-2:]):
        remedy = f"make one file of them by DeepSpeed's zero_to_fp32.py, which is in the checkpoint's folder; {remedy}"
    raise CheckpointError(f"{found[0]}: is a pickle{others}, which can run code when it is read; {remedy}")


def _is_pickle(path: Path) -> bool:
    """Return whether a file is a pickle, by its content. Reading any other file reports what is wrong with it."""
    if path.name in _NAMES:
        return True
    try:
        with path.open("rb") as stream:
            beginning = stream.read(_SAFETENSORS_HEADER + 1)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return any(name.endswith("data.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False
    is_safetensors = beginning[_SAFETENSORS_HEADER:] == b"{"
    return len(beginning) > 1 and beginning[0] == 0x80 and beginning[1] in _PROTOCOLS and not is_safetensors
