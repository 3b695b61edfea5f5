from pathlib import Path

import numpy as np

from bertbench.data.store.dataset import Dataset
from bertbench.data.store.shards import write_split
from bertbench.loading.batch import read
from bertbench.loading.random_samples import wikipedia_like
from tests.tiny import samples_of


def test_samples_are_read_in_the_order_of_their_ids_from_all_shards(tmp_path: Path) -> None:
    content = wikipedia_like(13, seed=7).take(np.array([5, 0, 11, 2, 12, 7, 1]))
    content.segment_ids[:] = -np.arange(len(content.segment_ids)) % 2  # both of its values at odd places
    split = write_split(tmp_path / "train", [content], 3)
    dataset = Dataset(tmp_path, "train", split, np.load(tmp_path / "train" / "index.npy"))
    ids = np.array([6, 2, 3, 2, 0])  # of the shards 2, 0, 1, 0, 0, and one sample twice
    found = read(dataset.map_samples(), ids)
    assert samples_of(found) == samples_of(content.take(ids))
    for name, values in vars(content).items():
        field = getattr(found, name)
        assert field.dtype == values.dtype or name in ("lengths", "masked"), name
        assert field.flags.writeable, name
