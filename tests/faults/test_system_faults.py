"""A fault of the machine is named in the system's words, and never reported as damaged data."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from bertbench.checkpoint.hugging_face import export
from bertbench.checkpoint.weights_file import Weights
from bertbench.common.system_faults import uncaught
from tests.checkpoint.bundles import tensorflow_1, write_bundle
from tests.checkpoint.tiny_weights import CONFIG, write_tiny
from tests.conftest import Printed
from tests.data import published
from tests.data.published import SAMPLES
from tests.faults.failing_calls import Case, called

LISTED = (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE)
REMEDIES = {
    errno.EACCES: "give this user permission",
    errno.EMFILE: "raise `ulimit -n`",
    errno.ENOSPC: "make room on its disk",
}
"""What the message adds to the system's words."""
EXPENSIVE = ("again from where", "prepare the data", "checkpoint import", "make it again", "is damaged", "found 0")


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny dataset, and its system's file in the folder above."""
    shutil.copy(tiny_folder.parent / "tiny.json", tmp_path)
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))


def require_named(cases: list[Case], folder: Path, **environment: str) -> None:
    """Each command fails with one message per file: the system's reason and, for some, the remedy."""
    for case, ended in zip(cases, called(cases, folder, **environment), strict=True):
        assert ended.code in (1, 2), f"{case}\n{ended.text}"
        assert os.strerror(case.number) in ended.text, f"{case}\n{ended.text}"
        assert REMEDIES.get(case.number, "") in ended.text, f"{case}\n{ended.text}"
        assert not [words for words in EXPENSIVE if words in ended.text], f"{case}\n{ended.text}"


def test_no_command_needs_a_file_lock(copied: Path, text: Path, tmp_path: Path) -> None:
    system = str(copied.parent / "tiny.json")
    samples = published.write_hdf5(tmp_path / "part.hdf5", published.fixed_fields())
    commands = (
        ["data", "prepare", "--system", system, "--text", str(text), "--out", str(tmp_path / "made")],
        ["data", "verify", str(tmp_path / "made")],
        [
            "data", "convert-hdf5", str(samples), "--vocab-size", "97",
            "--out", str(tmp_path / "converted"),
        ],
        ["data", "shuffle", str(copied), "--seed", "3", "--shards", "2", "--out", str(tmp_path / "shuffled")],
    )  # fmt: skip
    for ended in called([Case(words, "flock", "", errno.ENOLCK) for words in commands], tmp_path):
        assert ended.code == 0, ended.text


@pytest.mark.faults
def test_locks_that_the_user_asks_for_and_the_file_system_refuses_are_named(copied: Path, tmp_path: Path) -> None:
    verify = Case(["data", "verify", str(copied)], "flock", "", errno.ENOLCK)
    require_named([verify], tmp_path, HDF5_USE_FILE_LOCKING="TRUE")


def test_a_sound_dataset_that_can_t_be_read_is_not_reported_as_damaged(copied: Path, tmp_path: Path) -> None:
    verify = ["data", "verify", str(copied)]
    files = ("manifest.json", "vocab.txt", "train/index.npy", "train/part_00001.h5")
    cases = [Case(verify, "open", files[0], number) for number in LISTED]
    cases += [Case(verify, "open", file, errno.ESTALE) for file in files[1:]]
    cases += [Case(verify, "read", file, errno.EIO) for file in files]
    cases += [Case(verify, "mmap", file, errno.ENODEV) for file in files[2:]]
    cases += [Case(["data", "show", str(copied)], "open", file, errno.EACCES) for file in files[::2]]
    require_named(cases, tmp_path)


def test_unreadable_inputs_and_unwritable_folders_are_named(copied: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    samples = published.write_hdf5(tmp_path / "samples.hdf5", published.fixed_fields())
    records = published.write_tfrecord(tmp_path / "records", [published.example(published.features(SAMPLES[0]))])
    prepare = ["data", "prepare", "--out", str(out)]
    from_text = [
        *prepare,
        "--system",
        str(copied.parent / "tiny.json"),
        "--text",
        str(text),
        "--vocab",
        str(copied / "vocab.txt"),
    ]
    conversion = ["--vocab-size", "97", "--out", str(out)]
    from_samples = ["data", "convert-hdf5", str(samples), *conversion]
    from_records = ["data", "convert-tfrecord", str(records), *conversion]
    cases = [
        Case(words, call, ending, number)
        for words, ending in ((from_text, "/articles.txt"), (from_text, "/vocab.txt"))
        for call, number in (("open", errno.EMFILE), ("read", errno.EIO))
    ]
    cases += [
        Case(words, "open", ending, errno.EACCES)
        for words, ending in ((from_samples, "/samples.hdf5"), (from_records, "/records"))
    ]
    cases += [
        Case(words, call, ending, number)
        for words, ending in (
            (from_samples, ".h5"),
            (from_text, ".h5"),
            (from_text, "/index.npy"),
            (from_text, "/manifest.json"),
        )
        for call, number in (("open", errno.EROFS), ("write", errno.ENOSPC))
    ]
    require_named(cases, tmp_path)
    assert not out.exists()


def test_a_broken_link_and_a_folder_in_place_of_a_file_are_named(copied: Path, printed: Printed) -> None:
    shard, index = copied / "train" / "part_00000.h5", copied / "eval" / "index.npy"
    shard.rename(copied.parent / "elsewhere.h5")
    shard.symlink_to("/nowhere/part_00000.h5")
    index.unlink()
    index.mkdir()
    lines = printed("data", "verify", copied, code=1).splitlines()
    assert any(line.startswith(f"{shard}: ") and "/nowhere/part_00000.h5" in line for line in lines)
    assert any(line.startswith(f"{index}: ") for line in lines)
    assert not any("found 0" in line or "prepare the data" in line for line in lines), lines
    shard.unlink()
    (copied.parent / "elsewhere.h5").rename(shard)
    (copied / "manifest.json").rename(copied.parent / "manifest.json")
    (copied / "manifest.json").symlink_to("gone.json")
    assert str(copied / "gone.json") in printed("data", "show", copied, code=2)


@pytest.mark.slow
def test_weights_that_can_t_be_read_are_not_reported_as_damaged(tmp_path: Path) -> None:
    weights, out = write_tiny(tmp_path / "weights.safetensors"), str(tmp_path / "out")
    write_bundle(tmp_path / "model.ckpt", tensorflow_1())
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    show = ["checkpoint", "show", str(weights)]
    import_tf = ["checkpoint", "import", "--from-tf", str(tmp_path / "model.ckpt"), "--config", str(config)]
    export(Weights.open(weights), tmp_path / "hf")
    import_hf = ["checkpoint", "import", "--from-hf", str(tmp_path / "hf")]
    cases = [Case(show, "open", "/weights.safetensors", number) for number in LISTED]
    cases += [
        Case([*words, "--out", out] if "import" in words else words, call, ending, number)
        for words, ending in (
            (show, "/weights.safetensors"),
            (import_tf, "model.ckpt.data-00000-of-00001"),
            (import_hf, "hf/model.safetensors"),
        )
        for call, number in (("mmap", errno.ENODEV), ("mmap", errno.ENOMEM), ("open", errno.EMFILE))
    ]
    cases += [
        Case([*words, "--out", out], "open", ending, errno.ESTALE)
        for words, ending in ((import_tf, "/bert_config.json"), (import_tf, ".index"), (import_hf, "hf/config.json"))
    ]
    cases += [Case([*import_hf, "--out", out], "write", "", errno.ENOSPC)]
    require_named(cases, tmp_path)
    assert not Path(out).exists()


def test_an_unexpected_error_is_one_line_if_the_system_is_at_fault_and_otherwise_a_defect() -> None:
    assert "ulimit -n" in (uncaught(OSError(errno.EMFILE, "")) or "")
    assert (uncaught(PermissionError(errno.EACCES, "", "/data/x")) or "").startswith("/data/x: ")
    assert uncaught(PermissionError(errno.EACCES, "")) is None, "it may come from a socket"
    assert uncaught(FileNotFoundError(errno.ENOENT, "", "/data/x")) is None
