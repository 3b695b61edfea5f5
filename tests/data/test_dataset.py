import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pytest
import torch

from bertbench.cli.data import recipe_of
from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.data.store import columns
from bertbench.data.store.dataset import Dataset, MappedShard
from bertbench.data.store.manifest import Manifest, existing
from bertbench.data.store.shards import write_shard
from bertbench.data.text.prepare import Texts, prepare
from bertbench.launch.preflight import this_node
from bertbench.loading.batch import gather, read_samples
from bertbench.loading.inputs import open_data
from tests.damage import change_manifest, cut
from tests.data.datasets import QUIET, written
from tests.data.published import SAMPLES
from tests.tiny import columns_of, samples_of, tiny_text


def test_the_index_packs_length_and_masked_count() -> None:
    lengths, masked = np.array([1, 2, 300, 512]), np.array([0, 1, 45, 127])
    entries = columns.pack(lengths, masked)
    assert entries.dtype == np.uint16
    assert columns.lengths_of(entries).tolist() == lengths.tolist()
    assert columns.masked_of(entries).tolist() == masked.tolist()
    for bad_length, bad_masked in ((0, 1), (513, 1), (10, 128)):
        with pytest.raises(ValueError, match="the index holds"):
            columns.pack(np.array([bad_length]), np.array([bad_masked]))


def test_a_batch_is_its_samples_one_after_the_other_longest_first(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAMPLES, 2)
    ids = np.array([2, 0, 1])
    batch = gather(dataset.map_samples(), ids, dataset.lengths(ids))
    assert batch.tokens_T.tolist() == SAMPLES[1].input_ids + SAMPLES[0].input_ids + SAMPLES[2].input_ids
    assert batch.segments_T.tolist() == SAMPLES[1].segment_ids + SAMPLES[0].segment_ids + SAMPLES[2].segment_ids
    assert batch.positions_T.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert batch.sequences.cu_seqlens_S1.tolist() == [0, 7, 12, 16]
    assert batch.masked_at_M.tolist() == [1, 5, 7 + 3, 12 + 2]
    assert batch.masked_labels_M.tolist() == [10, 50, 30, 20]
    assert batch.next_sentence_S.tolist() == [0, 1, 1]
    assert (batch.tokens_T.dtype, batch.masked_labels_M.dtype) == (torch.int32, torch.int64)


def test_samples_are_read_in_the_order_of_their_ids_from_all_shards(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAMPLES, 2)
    found = read_samples(dataset.map_samples(), np.array([2, 0, 1, 0]))
    assert samples_of(found) == [SAMPLES[2], SAMPLES[0], SAMPLES[1], SAMPLES[0]]
    for name, values in vars(columns_of(SAMPLES)).items():
        field = getattr(found, name)
        assert field.dtype == values.dtype, name
        assert field.flags.writeable, name


def test_a_shard_is_opened_when_its_first_sample_is_read(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAMPLES, 2)
    samples, shards = dataset.map_samples(), [tmp_path / "train" / shard.name for shard in dataset.split.shards]
    assert samples.shards_of(np.array([2, 0, 1])).tolist() == [1, 0, 0]
    shards[1].unlink()
    assert read_samples(samples, np.array([1, 0])).lengths.tolist() == [7, 5]
    shards[0].unlink()
    assert read_samples(samples, np.array([0])).lengths.tolist() == [5]  # it is open
    with pytest.raises(DataError, match="prepare the data again"):
        read_samples(samples, np.array([2]))


def test_a_shard_takes_one_mapping_while_it_is_used_and_no_descriptor(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAMPLES, 1)
    shards = dataset.map_samples()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    mapped = [shards.shard(number) for number in range(3)]
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert [mappings_of(tmp_path / "train" / f"part_0000{number}.h5") for number in range(3)] == [1, 1, 1]
    labels = mapped[0].views.masked_lm_ids
    del shards, mapped
    assert [mappings_of(tmp_path / "train" / f"part_0000{number}.h5") for number in range(3)] == [1, 0, 0]
    assert bytes(labels) == np.array(SAMPLES[0].masked_lm_ids, "<i2").tobytes()


def mappings_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_a_shard_whose_fields_are_elsewhere_is_one_error(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard", columns_of(SAMPLES))
    with h5py.File(tmp_path / "shard", "r+") as file:
        del file["masked_lm_ids"]
        file.create_dataset("masked_lm_ids", (4,), "<i2", external=[(str(tmp_path / "values"), 0, 8)])
    with pytest.raises(DataError, match="masked_lm_ids: found values that aren't in the file"):
        MappedShard(tmp_path / "shard", 3)


def test_more_shards_than_a_rank_can_map_are_refused_before_the_clock_and_by_preflight(
    tiny_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertbench.loading.inputs.most_mapped_files", lambda: 3)
    assert any("can map only 3" in problem for problem in this_node(load_system(tiny_file), [0]).problems)
    with pytest.raises(DataError, match="can map only 3"):
        open_data(load_system(tiny_file))


def test_shards_carry_mlperfs_fields_and_types(tiny_folder: Path) -> None:
    with h5py.File(tiny_folder / "train" / "part_00000.h5") as file:
        types = {name: field.dtype.str for name, field in file.items()}
    assert types == {
        "input_ids": "<i2", "segment_ids": "|i1", "masked_lm_positions": "<i2", "masked_lm_ids": "<i2",
        "next_sentence_labels": "|i1", "offsets": "<i8", "masked_offsets": "<i8",
    }  # fmt: skip


def test_the_same_seed_gives_byte_identical_shards_in_another_process(
    tiny_folder: Path, text: Path, tmp_path: Path
) -> None:
    system = tiny_folder.parent / "tiny.json"
    words = ["data", "prepare", "--system", system, "--text", text, "--out", tmp_path / "again"]
    shard_samples = Manifest.read(tiny_folder).request["recipe"]["shard_samples"]
    program = (
        "import sys; from bertbench.cli.main import main; from bertbench.data.text import prepare\n"
        f"prepare.SHARD_SAMPLES = {shard_samples}\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    subprocess.run([sys.executable, "-c", program, *words], check=True)
    for path in sorted(tiny_folder.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tiny_folder)).read_bytes(), path.name


def test_prepare_reuses_its_output_overwrites_nothing_and_leaves_no_scratch_file(
    copied: Path, text: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(load_system(str(tiny_folder.parent / "tiny.json")))
    source: Texts = {"text": [text]}
    _, existed = prepare(copied, source, recipe, None, QUIET)
    assert existed
    with pytest.raises(DataError, match=r"recipe\.seed: was 12345, is 5"):
        prepare(copied, source, replace(recipe, seed=5), None, QUIET)

    class Interrupting(Progress):
        def message(self, text: str) -> None:
            if "writing shards" in text:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "out", source, recipe, None, Interrupting(False))
    (tmp_path / "text").write_text("one sentence of the only article\n")
    with pytest.raises(DataError, match="found 1 documents and would hold out 0"):
        prepare(tmp_path / "out", {"text": [tmp_path / "text"]}, recipe, None, QUIET)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "text"]


def test_a_dataset_is_reused_only_for_the_same_files_in_the_same_order(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(load_system(str(tiny_folder.parent / "tiny.json")))
    files = [tmp_path / "AA" / "wiki_00", tmp_path / "AB" / "wiki_00"]
    for number, path in enumerate(files):
        path.parent.mkdir()
        path.write_text(tiny_text(Random(number), articles=200))
    prepare(tmp_path / "out", {"text": files}, recipe, None, QUIET)
    assert prepare(tmp_path / "out", {"text": files}, recipe, None, QUIET)[1]
    for others, difference in (
        (files[1:], "had 2 entries, has 1; entry 1 was"),
        (files[:1], "had 2 entries, has 1; entry 2 was"),
        (files[::-1], "was the same 2 entries in another order"),
    ):
        with pytest.raises(DataError, match=f"holds another dataset .source.text: {difference}"):
            prepare(tmp_path / "out", {"text": others}, recipe, None, QUIET)
    files[0].write_text(tiny_text(Random(7), articles=200))
    with pytest.raises(DataError, match=r"source\.text: entry 1 was \['wiki_00'"):
        prepare(tmp_path / "out", {"text": files}, recipe, None, QUIET)


def test_a_text_that_is_given_twice_is_refused_because_it_would_be_held_out_and_trained_on(
    tiny_folder: Path, text: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(load_system(str(tiny_folder.parent / "tiny.json")))
    (tmp_path / "copy").symlink_to(text)
    with pytest.raises(DataError, match=f"copy: found the content of {text} again"):
        prepare(tmp_path / "out", {"text": [text], "wiki": [tmp_path / "copy"]}, recipe, None, QUIET)


def test_a_text_that_can_t_be_read_twice_is_refused_and_a_vocabulary_is_read_once(
    tiny_folder: Path, text: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(load_system(str(tiny_folder.parent / "tiny.json")))
    reading, writing = os.pipe()
    os.write(writing, (tiny_folder / "vocab.txt").read_bytes())
    os.close(writing)
    pipe = Path(f"/dev/fd/{reading}")
    with pytest.raises(DataError, match="found a pipe or a device"):
        prepare(tmp_path / "out", {"text": [text, pipe]}, recipe, None, QUIET)
    manifest, _ = prepare(tmp_path / "out", {"text": [text]}, recipe, pipe, QUIET)
    os.close(reading)
    assert manifest.tokenizer == Manifest.read(tiny_folder).tokenizer


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (
            lambda folder: cut(folder / "train" / "part_00001.h5", -7),
            r"part_00001\.h5: found .* bytes, the manifest says",
        ),
        (lambda folder: (folder / "train" / "part_00001.h5").unlink(), r"part_00001\.h5: cannot be read"),
        (lambda folder: change_manifest(folder, "train", "samples", value=1), r"says uint16 of shape \(1,\)"),
        (lambda folder: np.save(folder / "train" / "index.npy", np.zeros(3, np.uint16)), r"uint16 of shape \(3,\)"),
        (lambda folder: (folder / "train" / "index.npy").unlink(), r"index\.npy: cannot be read"),
        (lambda folder: (folder / "manifest.json").unlink(), r"found no manifest\.json"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), r"manifest\.json: request: field required"),
        (
            lambda folder: change_manifest(folder, "format", value="x"),
            "format: input should be 'bertbench shards 1', found 'x'",
        ),
    ],
)
def test_a_damaged_dataset_is_one_error(copied: Path, damage: Callable[[Path], object], expected: str) -> None:
    damage(copied)
    with pytest.raises(DataError, match=expected):
        Dataset.open(copied, "train")


def test_a_damaged_dataset_is_not_used_again(copied: Path) -> None:
    request = Manifest.read(copied).request
    assert existing(copied, request) == Manifest.read(copied)
    cut(copied / "eval" / "part_00000.h5", -7)
    with pytest.raises(DataError, match="remove the dataset's folder"):
        existing(copied, request)


def test_a_shard_with_a_wrong_field_is_one_error(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard", columns_of(SAMPLES))
    for add, expected in (({"masked_lm_ids": np.zeros(4, np.int32)}, "found int32"), ({}, "nothing of that name")):
        with h5py.File(tmp_path / "shard", "r+") as file:
            del file["masked_lm_ids"]
            file.update(add)
        with pytest.raises(DataError, match=expected):
            MappedShard(tmp_path / "shard", 3)
