"""Speed-up and efficiency over ranks: of the record, of the model behind forecasts, of published results."""

import pytest

from lab.bench.scaling import Scaling, scalings
from tests.conftest import Answer


def rows_of(evidence: str, series: str = "") -> dict[int, Scaling]:
    rows = [row for row in scalings() if row.evidence == evidence and not row.name]
    return {row.ranks: row for row in rows if row.series.startswith(series)}


def test_measured_efficiency_is_the_share_of_a_step_that_its_sums_do_not_add() -> None:
    row = rows_of("measured", "clip.mode bucket, 1,650")[2]
    # The AMD's record: 57 of 240 ms are exposed.
    assert row.efficiency == pytest.approx(1 - 57 / 240, abs=0.005)
    assert row.speed_up == pytest.approx(2 * row.efficiency)


def test_computed_series_begin_at_one_node_and_lose_with_each_doubling() -> None:
    for series in ("weak", "strong"):
        rows = rows_of("computed", series)
        efficiencies = [rows[8 * 2**doubling].efficiency for doubling in range(10)]
        assert efficiencies[0] == 1
        assert efficiencies == sorted(efficiencies, reverse=True)


def test_weak_and_strong_scaling_are_one_run_at_1024_gpus() -> None:
    # 1,024 x 16 samples are the batch of 16,384.
    weak, strong = (rows_of("computed", series)[1024] for series in ("weak", "strong"))
    assert weak.samples_per_s == strong.samples_per_s


def test_megatron_lm_s_figures_agree_with_the_flops_that_its_authors_state() -> None:
    rows = [row for row in scalings() if row.name == "Megatron-LM 2019"]
    assert [(row.ranks, row.samples_per_s) for row in rows] == [(1, None), (8, None), (512, None)]
    # Their abstract: 15.1 PFLOP/s on 512 GPUs, of which one alone sustains 39 TFLOP/s, are 76 %. Section 5.1.1: 74 %.
    assert rows[-1].efficiency == pytest.approx(15.1e15 / (512 * 39e12), abs=0.02)
    # Their table 1 of version 1.0: as many samples of a larger model in 1,508 ms as in 1,288 on one GPU.
    eight = next(row for row in scalings() if row.name == "Megatron-LM 1.0, 2020" and row.ranks == 8)
    assert eight.efficiency == pytest.approx(8.7 / 1.2 * 1288 / 1508 / 8, rel=0.05)
    assert all(row.source for row in rows)


def test_published_efficiency_is_by_samples_a_second_of_a_gpu() -> None:
    rows = rows_of("published")
    # Samsung's run in round 2.0: 2,932,736 samples in 22.320 s on 1,024 GPUs are 128.3 a GPU.
    assert rows[1024].samples_per_s == pytest.approx(1024 * 128.3, rel=1e-3)
    assert rows[8].samples_per_s is not None
    assert rows[1024].efficiency == pytest.approx(128.3 / (rows[8].samples_per_s / 8), rel=1e-3)


def test_the_command_prints_every_row(answer: Answer) -> None:
    answers = answer("lab", "scaling")
    assert len(answers) == len(scalings())
    assert answers[0]["speed_up"] == pytest.approx(answers[0]["efficiency"] * answers[0]["ranks"])
