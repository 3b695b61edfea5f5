from pathlib import Path

import numpy as np
import pytest
import torch

from bertbench.balance.random_samples import draw_lengths, length_shares, predictions, samples_of_lengths
from bertbench.common.errors import DataError
from bertbench.data.store.dataset import Dataset
from bertbench.data.store.shards import write_split
from bertbench.loading.batch import Batch, gather
from lab.bench import loader as bench
from tests.conftest import Answer


def test_every_reader_returns_the_same_batch(tmp_path: Path) -> None:
    content = samples_of_lengths(draw_lengths(97, seed=2), seed=2)
    split = write_split(tmp_path / "train", [content], 31)
    dataset = Dataset(tmp_path, "train", split, np.load(tmp_path / "train" / "index.npy"))
    ids = np.array([96, 3, 31, 62, 0, 30])
    ours = gather(dataset.map_samples(), ids, dataset.lengths(ids))
    pytest.importorskip("datasets")
    assert same(ours, bench.arrow_reader(content)(ids))


def same(first: Batch, second: Batch) -> bool:
    return all(map(torch.equal, first.tensors, second.tensors))


def test_the_bench_measures_every_reader(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setattr(bench, "ROUND_S", 0.01)
    monkeypatch.setattr(bench, "SAMPLES", 480)
    rates = answer("lab", "loader")
    assert {rate["name"] for rate in rates} >= {"bertbench"}
    assert all(rate["samples_per_s"] > 0 for rate in rates)


def test_wikipedia_s_histogram_is_the_default(tmp_path: Path) -> None:
    shares = length_shares()
    assert len(shares) == 512
    assert shares @ np.arange(1, 513) == pytest.approx(255.8, abs=0.05)
    assert draw_lengths(5, 3, np.array([0.0, 0.0, 1.0])).tolist() == [3] * 5
    assert predictions(np.array([1, 10, 100, 506, 512])).tolist() == [1, 2, 15, 76, 76]


@pytest.mark.parametrize("content", ["{", "{}", '{"counts": [0, 0]}', '{"counts": [1, -1]}', '{"counts": "x"}'])
def test_a_file_that_is_not_a_histogram_is_one_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "lengths.json"
    path.write_text(content)
    with pytest.raises(DataError, match="is not a length histogram"):
        length_shares(path)
