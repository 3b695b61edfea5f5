"""`lab parallel`: a small model in every layout that two cores have room for, on gloo ranks."""

import json
from pathlib import Path

import pytest

from tests.conftest import Answer


@pytest.mark.slow
def test_layouts_without_more_ranks_than_cores_train_equally(
    tiny_file: str, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "four.json"
    content = json.loads(Path(tiny_file).read_text())
    content["model"]["layers"], content["data"]["global_batch_size"] = 4, 24
    path.write_text(json.dumps(content))
    monkeypatch.setattr("lab.bench.parallel.available_cores", lambda: 2)
    rows = answer("lab", "parallel", "--system", path, "--steps", 5, "--seeds", 2)
    assert [(row["layout"], row["seed"]) for row in rows] == [
        (layout, seed) for layout in ("data 1", "data 2", "pipeline 2") for seed in (1, 2)
    ]
    assert all(row["samples_per_s"] > 0 for row in rows)
    assert len({row["accuracy"] for row in rows if row["seed"] == 1}) == 1
