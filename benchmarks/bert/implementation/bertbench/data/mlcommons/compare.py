"""Compare the sizes of TFRecords with those that MLCommons publishes for its reference's.

A record's size follows from every id in it, so equal sizes of a whole file show that its samples are the reference's.
"""

from collections.abc import Sequence

from bertbench.data.formats.reference_files import Written, mlperf_recipe
from bertbench.data.mlcommons import published
from bertbench.data.store.manifest import Manifest

_REMEDY = "compare text and vocabulary with `bertbench data doctor`"


def published_bytes(manifest: Manifest, name: str) -> int | None:
    """Return the size that MLCommons gives for this file, if this dataset was made by the reference's command."""
    return published.tfrecord_bytes(name) if _made_as_published(manifest) else None


def differences(files: Sequence[Written], manifest: Manifest) -> list[str]:
    """Return a line for each file, and for all 500 parts together, whose size is not the published one."""
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
