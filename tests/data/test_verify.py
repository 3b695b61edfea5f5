import re
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bertbench.data.store.manifest import Manifest, file_sha256
from bertbench.data.store.shards import write_shard, write_split
from tests.conftest import Answer, Printed
from tests.damage import change_manifest, flip
from tests.data.published import SAMPLES
from tests.tiny import Sample, columns_of


def rewritten(folder: Path, samples: list[Sample], shard_samples: int) -> None:
    """Another training split in a dataset, whole and listed."""
    shutil.rmtree(folder / "train")
    train = write_split(folder / "train", [columns_of(samples)], shard_samples)
    Manifest(**{**vars(Manifest.read(folder)), "train": train}).write(folder)


def fall_back(folder: Path) -> None:
    """Offsets that don't rise, in a shard whose checksum the manifest knows."""
    path = folder / "train" / "part_00000.h5"
    with h5py.File(path, "r+") as file:
        file["masked_offsets"][1] = -1
    change_manifest(folder, "train", "shards", 0, "sha256", value=file_sha256(path))


def replace_shard(folder: Path, samples: list[Sample], counted: int = 1) -> None:
    """The first shard holds these samples, and the manifest agrees."""
    written = write_shard(folder / "train" / "part_00000.h5", columns_of(samples))
    for name in ("bytes", "sha256"):
        change_manifest(folder, "train", "shards", 0, name, value=getattr(written, name))
    change_manifest(folder, "train", "shards", 0, "samples", value=counted)


def test_a_sound_dataset_verifies_and_says_so_in_json(tiny_folder: Path, answer: Answer) -> None:
    content = answer("data", "verify", tiny_folder)
    assert (content["ok"], content["problems"]) == (True, [])
    assert content["splits"]["eval"]["samples"] == 13
    train = Manifest.read(tiny_folder).splits()["train"]
    assert content["splits"]["train"] == {
        "samples": train.samples, "tokens": train.tokens, "masked": train.masked_tokens
    }  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda folder: flip(folder / "train" / "part_00001.h5", -9), "part_00001.h5: found sha256"),
        (lambda folder: (folder / "vocab.txt").unlink(), "vocab.txt: cannot be read (No such file or directory)"),
        (lambda folder: (folder / "eval" / "part_00000.h5").unlink(), "part_00000.h5: cannot be read"),
        (lambda folder: np.save(folder / "eval" / "index.npy", np.zeros(3)), "found float64 of shape (3,)"),
        (lambda folder: (folder / "train" / "part_x.h5").touch(), "part_x.h5: found a file that the manifest doesn't"),
        (
            lambda folder: change_manifest(folder, "eval", "samples", value=14),
            "found 13 samples read, the manifest says",
        ),
        (
            lambda folder: change_manifest(folder, "eval", "masked_tokens", value=1),
            "masked tokens, the manifest says 1",
        ),
        (lambda folder: change_manifest(folder, "tokenizer", "vocab_size", value=7), ", expected 0 to 6"),
        (fall_back, "masked_offsets: found values that don't increase from 0"),
        (
            lambda folder: replace_shard(folder, SAMPLES[:1]),
            "found a length or masked count that differs from the index",
        ),
        (lambda folder: replace_shard(folder, SAMPLES), "offsets: found int64 of shape (4,), expected int64"),
    ],
)
def test_damage_is_reported_in_one_line(
    copied: Path, printed: Printed, damage: Callable[[Path], object], expected: str
) -> None:
    damage(copied)
    lines = printed("data", "verify", copied, code=1).splitlines()
    assert any(expected in line for line in lines if line.startswith(str(copied))), lines


def test_a_summary_counts_lengths_masks_and_padding(copied: Path, printed: Printed, answer: Answer) -> None:
    rewritten(copied, SAMPLES, 2)
    split = answer("data", "show", copied)["splits"]["train"]
    assert [split[name] for name in ("samples", "shards", "tokens", "masked_tokens")] == [3, 2, 16, 4]
    assert [split[name] for name in ("shortest", "longest", "masked_share")] == [4, 7, 0.25]
    assert split["padding_fraction"] == pytest.approx(5 / 21)  # 3 * 7 places, 16 tokens
    assert split["histogram"] == [0, 0, 0, 1, 1, 0, 1]
    text = printed("data", "show", copied)
    assert "lengths 4 to 7, mean 5.3; padded to 7, 23.8% of a batch would be padding" in text
    assert "best constant guess on eval: " in text
    # at most 16 bars of equal width
    rewritten(copied, [Sample([1] * length, [0] * length, [1], [2], 0) for length in (3, 31, 32)], 3)
    split = answer("data", "show", copied)["splits"]["train"]
    assert (split["bin_width"], split["histogram"]) == (2, [0, 1, *[0] * 13, 2])  # 3 to 4, and 31 to 32
    text = printed("data", "show", copied)
    assert "train: 3 samples in 1 shard, 66 tokens" in text
    train = text.partition("\neval: ")[0]
    assert re.findall(r"^ +(\d+) to +(\d+)", train, re.MULTILINE) == [("3", "4"), ("31", "32")], "no empty bins"
