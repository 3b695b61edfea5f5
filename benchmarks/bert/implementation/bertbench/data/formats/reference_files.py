"""Map the shards of a dataset to the TFRecords of MLPerf's reference.

The reference makes one TFRecord per text file, under the text's name; eval.txt becomes eval_intermediate, and the
10,000 samples picked from that become eval_10k (mlcommons/training, retired_benchmarks/bert/README.md).
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from bertbench.common.errors import DataError
from bertbench.data.store.manifest import Manifest, Split, SplitName

_EVAL_TEXT, _EVAL_ALL = "eval.txt", "eval_intermediate"
_EVAL_PICKED = {10_000: "eval_10k"}
_SHARD_OF_TEXT = re.compile(r"part_(\d{5,})_\d{2,}\.h5")  # as data/text/mlperf.py names them
_PLAIN_NAME = re.compile(r"[\w-][\w.-]*", re.ASCII)


OutFiles = dict[str, tuple[int, ...]]
"""Files to write: their names, and the numbers of the shards that each holds, in order."""


class Written(NamedTuple):
    """A file that was written, or whose size was computed."""

    name: str
    samples: int
    bytes: int


def reference_files(manifest: Manifest, split_name: SplitName) -> OutFiles:
    """Return one file per text for the reference's order, one for picked samples, else one per shard.

    Raises DataError if the manifest contradicts itself.
    """
    split = manifest.splits()[split_name]
    recipe = mlperf_recipe(manifest)
    if recipe is None:
        count = len(split.shards)
        return {f"part-{number:05d}-of-{count:05d}": (number,) for number in range(count)}
    picked = recipe.get("select_eval")
    if picked is not None:
        return {_EVAL_PICKED.get(picked, f"eval_{picked}"): tuple(range(len(split.shards)))}
    try:
        return _one_a_text([str(name) for name, _ in manifest.request["source"]["text"]], split)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"the manifest's request doesn't list the texts of its shards ({error!r}), expected a name and a checksum "
            "each; prepare the data again"
        ) from error


def mlperf_recipe(manifest: Manifest) -> Mapping[str, Any] | None:
    """Return the request of `data prepare --recipe mlperf`, if the samples are still in its order."""
    recipe: Mapping[str, Any] = manifest.request["recipe"]
    return recipe if recipe.get("name") == "mlperf" else None


def _one_a_text(texts: list[str], split: Split) -> OutFiles:
    shards: dict[int, list[int]] = {number: [] for number in range(len(texts))}
    for number, shard in enumerate(split.shards):
        matched = _SHARD_OF_TEXT.fullmatch(shard.name)
        if matched is None:
            raise ValueError(f"shard {shard.name}")
        shards[int(matched[1])].append(number)
    names = [_EVAL_ALL if text == _EVAL_TEXT else text for text in texts]
    if len(set(names)) < len(names) or not all(map(_PLAIN_NAME.fullmatch, names)):
        names = [f"part-{number:05d}-of-{len(texts):05d}" for number in range(len(texts))]
    return {name: tuple(shards[number]) for number, name in enumerate(names)}
