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
    recipe = mlperf_recipe(manifest) or {}
    as_published = (recipe.get("dupe_factor"), recipe.get("seed")) == (published.DUPE_FACTOR, published.SEED)
    return published.TFRECORD_BYTES.get(name) if as_published else None


def differences(files: Sequence[Written], manifest: Manifest) -> list[str]:
    """Return one line per file, and for all 500 parts together, with another than the published size."""
    expected = [(file.name, file.bytes, published_bytes(manifest, file.name)) for file in files]
    parts = set(map(published.part_name, range(published.TEXT_PARTS)))
    if {file.name for file in files} == parts and expected[0][2]:
        expected.append(("all parts", sum(file.bytes for file in files), published.ALL_TFRECORD_PARTS_BYTES))
    return [
        f"{name}: found {found:,} bytes, MLCommons publishes {size:,}; {_REMEDY}"
        for name, found, size in expected
        if size not in (None, found)
    ]
