"""Compare the sizes of TFRecords with those that MLCommons publishes.

A record's size depends on every id, so equal file sizes are strong evidence for the reference's samples.
"""

from collections.abc import Sequence

from bertbench.data.formats.reference_files import Written, mlperf_recipe
from bertbench.data.mlcommons import published
from bertbench.data.store.manifest import Manifest

_REMEDY = "compare text and vocabulary with `bertbench data verify`"


def published_bytes(manifest: Manifest, name: str) -> int | None:
    """Return the published size of this file, if this dataset was made with the reference's options."""
    return published.tfrecord_bytes(name) if _made_as_published(manifest) else None


def differences(files: Sequence[Written], manifest: Manifest) -> list[str]:
    """Return one line per file, and for all 500 parts together, with another than the published size."""
    found = [
        f"{file.name}: found {file.bytes:,} bytes, MLCommons publishes {expected:,}; {_REMEDY}"
        for file in files
        if (expected := published_bytes(manifest, file.name)) not in (None, file.bytes)
    ]
    parts = {published.part_name(number) for number in range(published.TEXT_PARTS)}
    all_there = _made_as_published(manifest) and {file.name for file in files} == parts
    total, expected = sum(file.bytes for file in files), published.ALL_TFRECORD_PARTS_BYTES
    if all_there and total != expected:
        found.append(f"all parts: found {total:,} bytes, MLCommons publishes {expected:,}; {_REMEDY}")
    return found


def _made_as_published(manifest: Manifest) -> bool:
    recipe = mlperf_recipe(manifest) or {}
    return (recipe.get("dupe_factor"), recipe.get("seed")) == (published.DUPE_FACTOR, published.SEED)
