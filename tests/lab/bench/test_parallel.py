"""`lab parallel`: a small model in every layout that two cores have room for, on gloo ranks."""

import json
from pathlib import Path

import pytest

from lab.bench.parallel import layouts_of
from tests.conftest import Answer


@pytest.fixture
def four_layers(tiny_file: str, tmp_path: Path) -> str:
    path = tmp_path / "four.json"
    content = json.loads(Path(tiny_file).read_text())
    content["model"]["layers"], content["data"]["global_batch_size"] = 4, 24
    path.write_text(json.dumps(content))
    return str(path)


def test_a_layout_with_more_ranks_than_cores_is_left_out(four_layers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.bench.parallel.available_cores", lambda: 2)
    systems = layouts_of(four_layers, 5)
    assert {layout: system.world_size for layout, system in systems.items()} == {
        "data 1": 1, "data 2": 2, "pipeline 2": 2
    }  # fmt: skip
    assert {system.global_batch_size for system in systems.values()} == {24}


@pytest.mark.slow
def test_every_layout_trains_alike(four_layers: str, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.bench.parallel.available_cores", lambda: 2)
    rows = answer("lab", "parallel", "--system", four_layers, "--steps", 5, "--seeds", 2)
    assert [(row["layout"], row["ranks"], row["seed"]) for row in rows] == [
        (layout, ranks, seed) for layout, ranks in (("data 1", 1), ("data 2", 2), ("pipeline 2", 2)) for seed in (1, 2)
    ]  # fmt: skip
    assert all(row["samples_per_s"] > 0 for row in rows)
    assert len({row["accuracy"] for row in rows if row["seed"] == 1}) == 1
