"""List MLCommons' published files for BERT: names, sizes, MD5 and download addresses.

Sources: mlcommons/training, retired_benchmarks/bert, README.md (downloads, text, TFRecords) and dataset.md (input
files, dump). Neither gives sizes or MD5 of 494 of the 500 text parts; the downloader's .md5 list does.
"""

from dataclasses import dataclass
from typing import Literal

Group = Literal["text", "input", "tf1", "tf2", "dump"]
DOWNLOADER = "https://raw.githubusercontent.com/mlcommons/r2-downloader/refs/heads/main/mlc-r2-downloader.sh"
TEXT_URI = "https://training.mlcommons-storage.org/metadata/bert-preprocessed-wikipedia-dataset.uri"
INPUT_URI = "https://training.mlcommons-storage.org/metadata/bert-input-files.uri"
TEXT_PARTS = 500
ALL_TFRECORD_PARTS_BYTES = 391_434_110_129
RECIPE = {"dupe_factor": 10, "seed": 12345}
"""Options of the command that made the published TFRecords, besides the length 512 and 76 predictions."""


@dataclass(frozen=True)
class PublishedFile:
    """One published file; `bytes` and `md5` are None if MLCommons gives none."""

    name: str
    group: Group
    needed: bool
    """Whether training needs it: text, vocabulary, configuration, and one of the two checkpoints."""
    bytes: int | None = None
    md5: str | None = None


def part_name(number: int) -> str:
    """Return the name of a text part, which is also the name of its TFRecord."""
    return f"part-{number:05d}-of-{TEXT_PARTS:05d}"


TFRECORD_BYTES = {
    "eval_intermediate": 843_343_183,
    "eval_10k": 25_382_591,
    part_name(0): 514_241_279,
    part_name(499): 898_392_312,
}
"""Published sizes of the reference's TFRecords."""
_PARTS = {
    0: (27_150_902, "a64a7c31eff5cd38ae6d94f7a6229dab"),
    1: (27_198_569, "549a9ed4f805257245bec936563abfd0"),
    2: (27_395_616, "1a1366ddfc03aef9d41ce552ee247abf"),
    497: (24_775_043, "66835aa75d4855f2e678e8f3d73812e9"),
    498: (24_575_505, "e6d68a7632e9f4aa1a94128cce556dc9"),
    499: (21_873_644, "b3b087ad24e3770d879a351664cebc5a"),
}
_INDEX = "model.ckpt-28252.index"
_DATA = "model.ckpt-28252.data-00000-of-00001"
_META = "model.ckpt-28252.meta"
_DUMP = "enwiki-20200101-pages-articles-multistream.xml"
_NAMES = [part_name(number) for number in range(TEXT_PARTS)]

FILES = (
    PublishedFile("eval.txt", "text", True, 32_851_144, "2a220f790517261547b1b45ed3ada07a"),
    *(PublishedFile(name, "text", True, *_PARTS.get(number, ())) for number, name in enumerate(_NAMES)),
    PublishedFile("eval.md5", "text", False, 330_000, "71a58382a68947e93e88aa0d42431b6c"),
    PublishedFile("vocab.txt", "input", True, 231_508, "64800d5d8528ce344256daf115d4965e"),
    PublishedFile("bert_config.json", "input", True, 314, "7f59165e21b7d566db610ff6756c926b"),
    PublishedFile(_INDEX, "tf1", True, 17_371, "f97de3ae180eb8d479555c939d50d048"),
    PublishedFile(_DATA, "tf1", True, 4_034_713_312, "50797acd537880bfb5a7ade80d976129"),
    PublishedFile(_META, "tf1", False, 24_740_228, "dbd16c731e8a8113bc08eeed0326b8e7"),
    PublishedFile(_INDEX, "tf2", True, 6_420, "fc34dd7a54afc07f2d8e9d64471dc672"),
    PublishedFile(_DATA, "tf2", True, 1_344_982_997, "77d642b721cf590c740c762c7f476e04"),
    PublishedFile(f"{_DUMP}.bz2", "dump", False, 17_751_214_669, "00d47075e0f583fb7c0791fac1c57cb3"),
    PublishedFile(_DUMP, "dump", False, 75_163_254_305, "1021bd606cba24ffc4b93239f5a09c02"),
)
