from pathlib import Path

import pytest

from bertbench.cli.main import main
from bertbench.common.errors import DataError
from bertbench.data.formats.convert import Conversion, Format, convert_samples
from bertbench.data.store.manifest import Manifest
from bertbench.data.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertbench.loading.inputs import open_data
from tests.conftest import Captured, Printed, Tiny
from tests.data import published
from tests.data.datasets import QUIET, read
from tests.data.published import SAMPLES, VOCAB_SIZE


def converted(out: Path, *paths: Path, of: Format = "hdf5", split: str = "train", shard_samples: int = 2) -> Manifest:
    """The manifest of a conversion through the command line."""
    words = ["data", f"convert-{of}", *map(str, paths), "--vocab-size", str(VOCAB_SIZE)]
    assert main([*words, "--out", str(out), "--split", split, "--shard-samples", str(shard_samples)]) == 0
    return Manifest.read(out)


def test_a_folder_of_files_becomes_shards_in_order(tmp_path: Path, printed: Printed, capsys: Captured) -> None:
    source = tmp_path / "source"
    source.mkdir()
    published.write_hdf5(source / "part_1.hdf5", published.varlength_fields(SAMPLES[2:]))
    published.write_hdf5(source / "part_0.h5", published.fixed_fields(SAMPLES[:2]))
    for name in ("md5sums", "part_2.HDF5", ".part_3.hdf5"):  # not data, another name, and hidden
        (source / name).write_text("not data")
    (source / "more").mkdir()
    capsys.readouterr()
    manifest = converted(tmp_path / "out", source)
    (unread,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: not read")]
    assert [name in unread for name in ("md5sums", "part_2.HDF5", "more", "part_3")] == [True, True, True, False]
    assert manifest.train is not None
    assert [shard.samples for shard in manifest.train.shards] == [2, 1]  # a file each
    assert (manifest.train.samples, manifest.train.tokens, manifest.train.masked_tokens) == (3, 16, 4)
    assert (manifest.tokenizer.vocab_size, manifest.eval, manifest.most_frequent_token) == (VOCAB_SIZE, None, None)
    assert read(tmp_path / "out") == SAMPLES
    printed("data", "shuffle", tmp_path / "out", "--seed", 1, "--shards", 3, "--out", tmp_path / "shuffled")
    assert sorted(read(tmp_path / "shuffled")) == sorted(SAMPLES)


def test_converted_samples_and_vocabulary_give_the_shards_of_a_dataset_made_from_text(
    tiny_folder: Path, tmp_path: Path, printed: Printed
) -> None:
    train = Manifest.read(tiny_folder).splits()["train"]
    path = published.write_hdf5(tmp_path / "part.hdf5", published.varlength_fields(read(tiny_folder)))
    words = [path, "--vocab", tiny_folder / "vocab.txt", "--out", tmp_path / "back"]
    printed("data", "convert-hdf5", *words, "--shard-samples", train.shards[0].samples)
    again = Manifest.read(tmp_path / "back")
    assert again.tokenizer == Manifest.read(tiny_folder).tokenizer
    assert [shard.sha256 for shard in again.splits()["train"].shards] == [shard.sha256 for shard in train.shards]
    assert again.splits()["train"].index_sha256 == train.index_sha256


def test_a_run_trains_and_evaluates_on_two_conversions(tiny: Tiny, tmp_path: Path) -> None:
    path = published.write_hdf5(tmp_path / "train.hdf5", published.fixed_fields())
    held_out = published.write_hdf5(tmp_path / "eval.hdf5", published.fixed_fields(SAMPLES[:1]))
    converted(tmp_path / "out", path)
    manifest = converted(tmp_path / "out_eval", held_out, split="eval")
    assert manifest.most_frequent_token is not None
    assert vars(manifest.most_frequent_token) == {"token": "id 30", "accuracy": 1.0}
    training, evaluation = open_data(tiny(f"data.path={tmp_path / 'out'}", f"data.eval_path={tmp_path / 'out_eval'}"))
    assert (len(training), len(evaluation)) == (3, 1)


def test_a_conversion_is_reused_and_never_overwrites_another(tmp_path: Path) -> None:
    path = published.write_hdf5(tmp_path / "part.hdf5", published.fixed_fields())
    other = published.write_hdf5(tmp_path / "other.hdf5", published.fixed_fields(SAMPLES[:1]))
    converted(tmp_path / "out", path)
    conversion = Conversion("hdf5", (path,), "train", VOCAB_SIZE, 2)
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *(str(number) for number in range(5, VOCAB_SIZE))))
    assert convert_samples(tmp_path / "out", conversion, QUIET)[1]
    for changed, expected in (
        ({"files": (other,)}, r"source\.train\.files: entry 1 was"),
        ({"shard_samples": 3}, r"recipe\.shard_samples: was 2, is 3"),
        ({"split": "eval"}, r"source\.eval\.files: was None"),
        ({"vocab_size": 60}, r"recipe\.vocab_size: was 53, is 60"),
        ({"vocabulary": vocabulary}, r"vocab_sha256: was None"),
    ):
        with pytest.raises(DataError, match=expected):
            convert_samples(tmp_path / "out", Conversion(**{**vars(conversion), **changed}), QUIET)
    assert read(tmp_path / "out") == SAMPLES


def test_a_restart_makes_only_the_files_that_are_missing(tmp_path: Path) -> None:
    other = [sample._replace(next_sentence_label=1 - sample.next_sentence_label) for sample in SAMPLES]
    broken = published.fixed_fields(other)
    broken["input_ids"][1, 0] = -3
    files = [
        published.write_hdf5(tmp_path / "a.hdf5", published.fixed_fields()),
        published.write_hdf5(tmp_path / "b.hdf5", broken),
    ]
    conversion, work = Conversion("hdf5", tuple(files), "train", VOCAB_SIZE, 2), tmp_path / ".out.unfinished"
    with pytest.raises(DataError, match=r"b\.hdf5: row 1"):
        convert_samples(tmp_path / "out", conversion, QUIET)
    assert not (tmp_path / "out").exists()
    times = {path.name: path.stat().st_mtime_ns for path in work.glob("train/*.h5")}
    assert len(times) == 2  # of three samples
    published.write_hdf5(files[1], published.fixed_fields(other))  # mended
    convert_samples(tmp_path / "out", conversion, QUIET)
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("train/*.h5")}
    assert {name: now[name] for name in times} == times
    assert read(tmp_path / "out") == [*SAMPLES, *other]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["manifest.json", "train"]
    assert not work.exists()


def test_a_conversion_keeps_nothing_of_the_files_that_a_stopped_one_had_finished_and_this_one_leaves_out(
    tmp_path: Path, printed: Printed
) -> None:
    files = []
    for number in range(3):
        samples = [SAMPLES[0]._replace(next_sentence_label=number)]  # the label 2 is none
        files.append(published.write_hdf5(tmp_path / f"{number}.hdf5", published.fixed_fields(samples)))
    work = tmp_path / ".out.unfinished"
    words = ["data", "convert-hdf5", "--vocab-size", VOCAB_SIZE, "--out", tmp_path / "out"]
    printed(*words, *files, code=2)
    assert len(list(work.glob("train/*.h5"))) == 2
    (work / ".scratch.0").mkdir()  # left by a killed command
    printed(*words, files[1])
    assert [path.name for path in (tmp_path / "out" / "train").glob("*.h5")] == ["part_00000_00.h5"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["manifest.json", "train"]
    printed("data", "verify", tmp_path / "out")


def test_a_stopped_conversion_of_one_split_doesn_t_count_for_the_other(tmp_path: Path, printed: Printed) -> None:
    good = published.write_hdf5(tmp_path / "good.hdf5", published.fixed_fields())
    words = ["data", "convert-hdf5", "--vocab-size", VOCAB_SIZE, "--out", tmp_path / "out", good]
    printed(*words, tmp_path / "none.hdf5", code=2)
    bad = published.write_hdf5(tmp_path / "bad.hdf5", published.fixed_fields([SAMPLES[0]._replace(masked_lm_ids=[99])]))
    printed(*words, bad, code=2)
    printed(*words, "--split", "eval")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["eval", "manifest.json"]


@pytest.mark.parametrize(
    "words",
    [
        "convert-hdf5 UNREAD --vocab-size 9",
        "convert-tfrecord UNREAD --vocab-size 9",
        "prepare --text UNREAD",
        "prepare --recipe mlperf --text UNREAD --vocab VOCAB",
        "shuffle UNREAD --seed 1 --shards 1",
    ],
)
def test_a_refused_place_is_named_before_any_input_is_read_and_nothing_is_left(
    tmp_path: Path, printed: Printed, words: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(SPECIAL_TOKENS))
    given = words.replace("VOCAB", str(vocab)).split()
    for out, expected in (
        ("/proc/none", "/proc/none: cannot be written"),
        (tmp_path / "file" / "out", "out: cannot be written"),
        (tmp_path / "empty", "empty: is there already"),
        (tmp_path / "file", "file: is there already"),
    ):
        found = printed("data", *given, "--out", out, code=2)
        assert expected in found
        assert found.count("\n") == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["empty", "file", "vocab.txt"]


@pytest.mark.parametrize("vocab_size", [0, 2**15 + 1])
def test_a_vocabulary_too_large_for_16_bits_is_refused(tmp_path: Path, vocab_size: int) -> None:
    with pytest.raises(DataError, match="expected 1 to 32,768"):
        convert_samples(tmp_path / "out", Conversion("hdf5", (), "train", vocab_size, 2), QUIET)
