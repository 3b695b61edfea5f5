import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest

from bertbench.cli.main import main
from bertbench.common.errors import DataError
from bertbench.data.store import shuffle as shuffling
from bertbench.data.store.manifest import Manifest
from bertbench.data.store.shuffle import shuffle
from bertbench.data.text.corpus import text_articles
from bertbench.data.text.mlperf import MlperfRecipe
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.loading.inputs import open_data
from tests.conftest import Captured, Printed, Tiny
from tests.data.datasets import QUIET, made, read
from tests.data.plain_samples import plain_samples
from tests.tiny import Sample, tiny_text

MLPERF = ["prepare", "--recipe", "mlperf", "--out", "O"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    """Three text files of different sizes."""
    paths = tuple(tmp_path / f"part-{number:05d}-of-00003" for number in range(3))
    for number, path in enumerate(paths):
        path.write_text(tiny_text(Random(number), articles=5 + 4 * number))
    return paths


def expected(path: Path, vocab: Path, recipe: MlperfRecipe) -> list[Sample]:
    vocabulary = Vocabulary.read(vocab)
    documents = [list(vocabulary.encode(article)) for article in text_articles(path)]
    return plain_samples(documents, vocabulary.ids, recipe.options(), recipe.seed)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_file_gives_the_reference_s_samples_in_its_order(
    tmp_path: Path, files: tuple[Path, ...], vocab: Path, workers: int
) -> None:
    recipe = MlperfRecipe(dupe_factor=3, seed=5)
    manifest, existed = made(tmp_path / "out", files, vocab, recipe, workers)
    assert not existed
    assert read(tmp_path / "out") == [sample for path in files for sample in expected(path, vocab, recipe)]
    assert manifest.eval is None
    assert manifest == Manifest.read(tmp_path / "out")
    assert made(tmp_path / "out", files, vocab, recipe, workers) == (manifest, True)


def test_a_text_of_one_article_is_warned_of(
    tmp_path: Path, vocab: Path, files: tuple[Path, ...], capsys: Captured
) -> None:
    text = tmp_path / "one"
    text.write_text("the model words\na the text\n")
    made(tmp_path / "out", [text, files[0]], vocab, MlperfRecipe(dupe_factor=1))
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert str(text) in warning


def test_a_text_that_is_given_twice_is_refused(tmp_path: Path, vocab: Path, files: tuple[Path, ...]) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(files[1].read_bytes())
    with pytest.raises(DataError, match=f"{copy}: found the content of {files[1]} again"):
        made(tmp_path / "out", [*files, copy], vocab, MlperfRecipe(dupe_factor=1))


def test_evaluation_samples_are_every_nth(tmp_path: Path, files: tuple[Path, ...], vocab: Path) -> None:
    whole = [sample for path in files for sample in expected(path, vocab, MlperfRecipe(dupe_factor=2))]
    recipe = MlperfRecipe(dupe_factor=2, select_eval=7)
    manifest, _ = made(tmp_path / "out", files, vocab, recipe)
    assert read(tmp_path / "out", "eval") == [whole[int(place * (len(whole) / 7))] for place in range(7)]
    assert manifest.train is None
    assert not (tmp_path / "out" / "train").exists()
    with pytest.raises(DataError, match="expected at least 100,000 to select"):
        made(tmp_path / "two", files, vocab, MlperfRecipe(select_eval=100_000))


def test_a_shuffle_is_a_permutation_that_its_seed_repeats(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = shuffle(tiny_folder, tmp_path / "a", 3, 5, QUIET)
    monkeypatch.setattr(shuffling, "BUFFER_BLOCKS", 1)  # many parts in a bucket
    shuffle(tiny_folder, tmp_path / "b", 3, 2, QUIET)
    shuffle(tiny_folder, tmp_path / "c", 4, 5, QUIET)
    before, a, b, c = (read(folder) for folder in (tiny_folder, tmp_path / "a", tmp_path / "b", tmp_path / "c"))
    assert sorted(a) == sorted(before)
    assert a != before
    assert a == b  # how many shards hold them doesn't change the order
    assert a != c
    assert first.train is not None
    sizes = [shard.samples for shard in first.train.shards]
    assert len(sizes) == 5
    assert max(sizes) - min(sizes) <= 1
    known = Manifest.read(tiny_folder)
    assert (first.eval, first.most_frequent_token) == (known.eval, known.most_frequent_token)
    for path in (tiny_folder / "eval").iterdir():
        assert (tmp_path / "a" / "eval" / path.name).read_bytes() == path.read_bytes()
    # neighbours don't stay neighbours
    place = {sample: number for number, sample in enumerate(map(str, before))}
    steps = np.diff([place[str(sample)] for sample in a])
    assert np.mean(np.abs(steps) == 1) < 0.1


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        (["prepare", "--recipe", "mlperf"], "--text"),
        (["prepare", "--dupe-factor", "3"], "--dupe-factor"),
        ([*MLPERF, "--text", "T", "--vocab", "V", "--workers", "0"], "0: "),
        ([*MLPERF, "--text", "missing", "--vocab", "V"], "missing: "),
        ([*MLPERF, "--text", "EMPTY", "--vocab", "V"], "EMPTY: "),
        (["prepare", "--recipe", "mlperf", "--text", "T", "--vocab", "V", "--out", "T/O"], "T/O: "),
        (["shuffle", "D", "--seed", "1", "--shards", "1000000", "--out", "O"], "--shards 1000000"),
    ],
)  # fmt: skip
def test_bad_input_or_a_contradicting_option_is_one_error(
    tmp_path: Path, files: tuple[Path, ...], vocab: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch,
    printed: Printed, words: list[str], expected_text: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("T").write_bytes(files[0].read_bytes())
    Path("V").write_bytes(vocab.read_bytes())
    Path("EMPTY").touch()
    Path("D").symlink_to(tiny_folder)
    assert expected_text in printed("data", *words, code=2)
    assert not Path("O").exists()


def test_a_shuffle_is_reused_and_refuses_large_shards_and_other_datasets(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffle(tiny_folder, tmp_path / "out", 3, 2, QUIET)
    assert shuffle(tiny_folder, tmp_path / "out", 3, 2, QUIET)[1]
    with pytest.raises(DataError, match=r"recipe\.shards: was 2, is 3"):
        shuffle(tiny_folder, tmp_path / "out", 3, 3, QUIET)
    monkeypatch.setattr(shuffling, "SHARD_BYTES", 500)
    with pytest.raises(DataError, match="give at least"):
        shuffle(tiny_folder, tmp_path / "out", 3, 2, QUIET)


def test_training_and_evaluation_samples_may_come_from_two_folders_with_one_vocabulary(
    tmp_path: Path, files: tuple[Path, ...], vocab: Path, tiny: Tiny
) -> None:
    made(tmp_path / "train", files, vocab, MlperfRecipe(dupe_factor=1))
    made(tmp_path / "eval", files[:1], vocab, MlperfRecipe(dupe_factor=1, select_eval=3))
    paths = [f"data.path={tmp_path / 'train'}", f"data.eval_path={tmp_path / 'eval'}", "model.max_positions=512"]
    training, evaluation = open_data(tiny(*paths))
    assert (training.name, evaluation.name, len(evaluation)) == ("train", "eval", 3)
    with pytest.raises(DataError, match="holds no eval samples"):
        open_data(tiny(paths[0], paths[2]))
    vocab.write_text(vocab.read_text() + "more\n")
    made(tmp_path / "other", files[:1], vocab, MlperfRecipe(dupe_factor=1, select_eval=3))
    with pytest.raises(DataError, match="use different vocabularies"):
        open_data(tiny(paths[0], f"data.eval_path={tmp_path / 'other'}", paths[2]))


def test_text_that_is_prepared_in_lower_case_for_a_vocabulary_with_capitals_is_warned_of(
    files: tuple[Path, ...], vocab: Path, tmp_path: Path, capsys: Captured
) -> None:
    cased = tmp_path / "cased.txt"
    cased.write_text(vocab.read_text() + "Berlin\n")
    words = ["--recipe", "mlperf", "--dupe-factor", "1", "--text", str(files[0]), "--vocab", str(cased)]
    assert main(["data", "prepare", *words, "--out", str(tmp_path / "out")]) == 0
    assert f"{cased}: 1 of " in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the worker")
def test_a_killed_worker_is_one_error_and_finished_files_stay(
    tmp_path: Path, files: tuple[Path, ...], vocab: Path
) -> None:
    files[2].write_text((tiny_text(Random(9), articles=300) + "\n\n") * 100)  # seconds of work
    words = ["data", "prepare", "--recipe", "mlperf", "--workers", 2, "--vocab", vocab, "--out", tmp_path / "out"]
    words += ["--text", *files]
    parent = subprocess.Popen([sys.executable, "-m", "bertbench", *map(str, words)], stderr=subprocess.PIPE, text=True)
    work = tmp_path / ".out.unfinished"
    end = time.monotonic() + 60
    while len(list(work.glob("part_*.json"))) < 2:
        assert time.monotonic() < end, "the small files were never finished"
        time.sleep(0.02)
    for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split():
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
    _, printed = parent.communicate(timeout=30)
    assert parent.returncode == 2
    assert "a worker process was killed" in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "out").exists()
    assert len(list(work.glob("part_*.json"))) == 2
