"""Map the shards of a dataset to the TFRecords of MLPerf's reference, and compare their sizes with the published ones.

The reference makes one TFRecord per text file, under the text's name; eval.txt becomes eval_intermediate, and the
10,000 samples picked from that become eval_10k (mlcommons/training, retired_benchmarks/bert/README.md). A record's size
depends on every id, so equal file sizes are strong evidence for the reference's samples.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertbench.data.mlcommons import published
from bertbench.data.store.manifest import Manifest, SplitName

_EVAL_TEXT = "eval.txt"
_EVAL_ALL = "eval_intermediate"
_REMEDY = "compare text and vocabulary with `bertbench data verify`"


class ReferenceFile(NamedTuple):
    """A TFRecord of the reference."""

    name: str
    samples: int
    bytes: int


def reference_files(manifest: Manifest, split_name: SplitName) -> list[tuple[str, tuple[int, ...]]]:
    """Return each file's name and the shards that it holds, by number.

    Samples in the reference's order make one file per text, picked samples make one file, and all other samples make
    one file per shard.
    """
    shards = manifest.splits()[split_name].shards
    recipe = mlperf_recipe(manifest)
    if recipe is None:
        return [(shard.name, (number,)) for number, shard in enumerate(shards)]
    if picked := recipe.get("select_eval"):
        name = "eval_10k" if picked == 10_000 else f"eval_{picked}"
        return [(name, tuple(range(len(shards))))]
    files = []
    for number, (text, _) in enumerate(manifest.request["source"]["text"]):
        name = _EVAL_ALL if text == _EVAL_TEXT else str(text)
        of_text = [place for place, shard in enumerate(shards) if shard.name.startswith(f"part_{number:05d}_")]
        files.append((name, tuple(of_text)))
    return files


def mlperf_recipe(manifest: Manifest) -> Mapping[str, Any] | None:
    """Return the request of `data prepare --recipe mlperf`, if the samples are still in its order."""
    recipe: Mapping[str, Any] = manifest.request["recipe"]
    return recipe if recipe.get("name") == "mlperf" else None


def published_bytes(manifest: Manifest) -> dict[str, int]:
    """Return the published sizes by name, if this dataset was made with the reference's options."""
    recipe = mlperf_recipe(manifest) or {}
    return published.TFRECORD_BYTES if published.RECIPE.items() <= recipe.items() else {}


def size_differences(files: Sequence[ReferenceFile], expected: dict[str, int]) -> list[str]:
    """Return a line for each file whose size isn't the published one; all 500 parts together count as one file."""
    sizes = {file.name: file.bytes for file in files}
    if expected and sizes.keys() == set(map(published.part_name, range(published.TEXT_PARTS))):
        sizes["all parts"] = sum(sizes.values())
        expected = {**expected, "all parts": published.ALL_TFRECORD_PARTS_BYTES}
    return [
        f"{name}: found {size:,} bytes, MLCommons publishes {expected[name]:,}; {_REMEDY}"
        for name, size in sizes.items()
        if size != expected.get(name, size)
    ]
