"""`lab squad`: rows of a small model on made questions, on gloo ranks; the questions themselves."""

import os
from pathlib import Path
from typing import Any

import pytest

from bertbench.finetune.squad_inputs import Inputs
from bertbench.finetune.squad_system import load_finetuning
from lab.bench.made_questions import write_questions
from lab.bench.noise_scale import NoiseScale
from lab.bench.squad import row_of_seed
from lab.bench.squad_run import BASELINE, LAYOUTS, Layout, Run, first_cores
from tests.conftest import Answer, Printed


def test_made_questions_can_all_be_trained_on_and_repeat(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        folder.mkdir()
    train, dev, vocab = write_questions(first, seed=1, train=50, dev=20)
    inputs = Inputs.open(load_finetuning("squad_cpu"), train, dev, vocab, None)
    assert (len(inputs.train), len(inputs.dev)) == (50, 20)
    assert not inputs.left_out
    assert {bool(question.answers) for question in inputs.train} == {True, False}
    assert train.read_bytes() == write_questions(again, seed=1, train=50, dev=20)[0].read_bytes()


def test_every_row_is_a_system_that_fine_tuning_accepts() -> None:
    for layout in LAYOUTS:
        system = load_finetuning("squad_cpu", layout.settings(16))
        assert (system.layout.data, system.layout.pipeline) == (layout.data, layout.pipeline)
        assert system.global_batch_size == 16 * layout.batches


def test_goodput_is_throughput_times_the_efficiency_of_the_batch() -> None:
    baseline = Run(10.0, 1000, 0.5, None, [2.0, 1.5], {"exact": 50.0, "f1": 60.0, "loss": 1.0})
    larger = Run(4.0, 1000, 0.5, None, [1.9], {"exact": 40.0, "f1": 50.0, "loss": 1.2})
    row = row_of_seed(Layout("twice", data=2, batches=2), 0, larger, baseline, NoiseScale(16.0, 8.0, 24.0), 16)
    assert row["samples_per_s"] == 250.0
    assert row["statistical_efficiency"] == pytest.approx(32 / 48)
    assert row["goodput_ratio"] == pytest.approx(250 * 32 / 48 / 100)
    assert row["largest_loss_difference"] is None, "it takes another number of steps"
    assert row["of_baseline"] == pytest.approx(
        {"seconds": 0.4, "samples_per_s": 2.5, "validation_loss": 1.2, "device_use": 1.0}
    )
    same = row_of_seed(BASELINE, 0, baseline._replace(losses=[2.0, 1.25]), baseline, NoiseScale(16.0, 8.0, 24.0), 16)
    assert (same["largest_loss_difference"], same["goodput_ratio"]) == (0.25, 1.0)


def test_a_rank_has_a_core_while_its_layout_runs() -> None:
    allowed = os.sched_getaffinity(0)
    with first_cores(1):
        assert os.sched_getaffinity(0) == {min(allowed)}
    with first_cores(1000):
        assert os.sched_getaffinity(0) == allowed
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.slow
def test_layouts_of_one_batch_have_equal_losses_and_rows_that_share_cores_are_marked(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, dev, vocab = write_questions(tmp_path, seed=1, train=40, dev=20)
    rows: list[dict[str, Any]] = answer(
        "lab", "squad", "squad_cpu", "--seeds", 1, "--train", train, "--dev", dev, "--vocab", vocab
    )
    assert [row["layout"] for row in rows] == [layout.name for layout in LAYOUTS]
    for row in rows:
        if row["global_batch_size"] == 16:
            assert row["largest_loss_difference"] < 1e-5
            assert row["f1"] == rows[0]["f1"]
        assert (row["bubble"] is not None) == ("pipeline" in row["layout"])
        assert 0 < row["device_use"] <= 1.1  # ticks of 10 ms, and threads beside the ranks
        assert row["goodput"] == pytest.approx(row["samples_per_s"] * row["statistical_efficiency"])
        assert row["noise_scale"]["low"] <= row["noise_scale"]["samples"] <= row["noise_scale"]["high"]


def test_files_of_questions_are_given_together(printed: Printed) -> None:
    assert "give all three, or none" in printed("lab", "squad", "--train", "here.json", code=2)
