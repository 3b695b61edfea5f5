"""Compare the sizes of TFRecords with those that MLCommons publishes.

A record's size depends on every id, so equal file sizes are strong evidence for the reference's samples.
"""

from collections.abc import Sequence

from bertbench.data.formats.reference_files import ReferenceFile, mlperf_recipe
from bertbench.data.mlcommons import published
from bertbench.data.store.manifest import Manifest

_REMEDY = "compare text and vocabulary with `bertbench data verify`"


def published_bytes(manifest: Manifest) -> dict[str, int]:
    """Return the published sizes by name, if this dataset was made with the reference's options."""
    recipe = mlperf_recipe(manifest) or {}
    return published.TFRECORD_BYTES if published.RECIPE.items() <= recipe.items() else {}


def differences(files: Sequence[ReferenceFile], expected: dict[str, int]) -> list[str]:
    """Return one line per file, and for all 500 parts together, with another than the published size."""
    found = {file.name: file.bytes for file in files}
    if expected and found.keys() == set(map(published.part_name, range(published.TEXT_PARTS))):
        found["all parts"] = sum(found.values())
        expected = {**expected, "all parts": published.ALL_TFRECORD_PARTS_BYTES}
    return [
        f"{name}: found {size:,} bytes, MLCommons publishes {expected[name]:,}; {_REMEDY}"
        for name, size in found.items()
        if size != expected.get(name, size)
    ]
