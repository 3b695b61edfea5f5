"""Map the shards of a dataset to the TFRecords of MLPerf's reference, and compute their sizes.

The reference makes one TFRecord per text file, under the text's name; eval.txt becomes eval_intermediate, and the
10,000 samples picked from that become eval_10k (mlcommons/training, retired_benchmarks/bert/README.md).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bertbench.data.store.manifest import Manifest, SplitName

_EVAL_TEXT, _EVAL_ALL = "eval.txt", "eval_intermediate"


class ReferenceFile(NamedTuple):
    """A TFRecord of the reference."""

    name: str
    samples: int
    bytes: int


def reference_files(manifest: Manifest, split_name: SplitName) -> list[tuple[str, tuple[int, ...]]]:
    """Return each file's name and the shards that it holds, by number.

    There is a file per text for the reference's order, one for picked samples, else one per shard.
    """
    shards = manifest.splits()[split_name].shards
    recipe = mlperf_recipe(manifest)
    if recipe is None:
        return [(shard.name, (number,)) for number, shard in enumerate(shards)]
    if picked := recipe.get("select_eval"):
        return [("eval_10k" if picked == 10_000 else f"eval_{picked}", tuple(range(len(shards))))]
    files = []
    for number, (text, _) in enumerate(manifest.request["source"]["text"]):
        of_text = (place for place, shard in enumerate(shards) if shard.name.startswith(f"part_{number:05d}_"))
        files.append((_EVAL_ALL if text == _EVAL_TEXT else str(text), tuple(of_text)))
    return files


def mlperf_recipe(manifest: Manifest) -> Mapping[str, Any] | None:
    """Return the request of `data prepare --recipe mlperf`, if the samples are still in its order."""
    recipe: Mapping[str, Any] = manifest.request["recipe"]
    return recipe if recipe.get("name") == "mlperf" else None
