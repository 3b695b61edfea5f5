"""`lab parallel`: its estimators on cases worked by hand, its page, and a small study on gloo ranks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertbench.cli import main
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import Loader
from bertbench.training.build import make_sampler, make_trainer
from bertbench.training.inputs import open_data
from lab.study.noise import PartGradients, Squares, noise_scale, statistical_efficiency
from lab.study.parallel import Row, busy_share, medians
from lab.study.parallel_page import concluded, not_concluded, page_of, table_rows
from tests.ranks import run_ranks

ROW = Row("data 1", 1, 1, 2.0, 50.0, 5.25, 0.125, [0.75], 30.0, 0.5, 25.0, 0.4, [(0, 6.0), (100, 5.25)])
FOUR = replace(ROW, layout="pipeline 4", ranks=4, validation_loss=5.5, utilisation=[0.5] * 4, samples_per_s=40.0)


def test_the_noise_scale_of_two_parts_is_the_one_worked_by_hand() -> None:
    # 4 samples in two parts, whose shares of the gradient are (2, 1) and (2, -1): it is (4, 0).
    # McCandlish's: small batches of 2 have means (4, 2) and (4, -2), |G_small|^2 = 20, |G_big|^2 = 16,
    # |G|^2 = (4 * 16 - 2 * 20) / (4 - 2) = 12, tr Sigma = (20 - 16) / (1 / 2 - 1 / 4) = 16
    assert noise_scale([Squares(16, 5 + 5, 1 / 2)], 4) == pytest.approx(16 / 12)


def test_the_noise_scale_of_unequal_parts_is_found_again() -> None:
    random, mean, deviation, sizes = np.random.default_rng(1), np.array([0.5, -1.0, 2.0]), 3.0, (2, 4, 7)
    batch, steps = sum(sizes), []
    for _ in range(4000):
        samples = mean + deviation * random.standard_normal((batch, 3))
        parts = [part.sum(axis=0) / batch for part in np.split(samples, np.cumsum(sizes)[:-1])]
        squares = [float(part @ part) for part in parts]
        whole = samples.mean(axis=0)
        steps.append(Squares(float(whole @ whole), sum(squares), sum((size / batch) ** 2 for size in sizes)))
    assert noise_scale(steps, batch) == pytest.approx(3 * deviation**2 / (mean @ mean), rel=0.05)


def test_a_sample_is_worth_less_in_a_large_batch_unless_noise_hides_the_gradient() -> None:
    assert statistical_efficiency(100, 60, 20) == 120 / 160
    assert statistical_efficiency(0, 60, 20) == 20 / 60  # without noise the batch repeats itself
    hidden = noise_scale([Squares(whole=1, parts=1, concentration=0.25)], 60)
    assert hidden == float("inf")
    assert statistical_efficiency(hidden, 60, 20) == 1


def test_gradients_of_parts_are_the_same_in_a_pipeline_and_on_one_rank(tiny: Callable[..., System]) -> None:
    pipelined = tiny("parallel.pipeline=2", "parallel.microbatches=3", "parallel.schedule=gpipe")
    alone = tiny("launch.ranks_per_node=1", "data.gradient_accumulation_steps=3")
    (expected,) = run_ranks(1, _squares, pipelined, alone)
    for found in run_ranks(2, _squares, pipelined, pipelined):
        assert found == pytest.approx(expected, rel=1e-5)


def _squares(world: World, dealt: System, system: System) -> Squares:
    """Of one step of `system` with the parts that `dealt` has."""
    training, _ = open_data(dealt)
    sampler = make_sampler(dealt, training, 7)
    ((parts, *_),) = Loader(sampler, 0, world.device).steps(range(1))
    trainer = make_trainer(system, world, 7, sampler)
    gradients = PartGradients(system, world, trainer)
    squares = gradients.squares(parts, trainer.step(0, parts).norm)
    trainer.close()
    return squares


def test_busy_is_the_time_of_operators_that_are_no_communication_on_the_thread_of_the_steps() -> None:
    def event(name: str, ts: float, dur: float, tid: int = 1, cat: str = "cpu_op") -> dict[str, Any]:
        return {"ph": "X", "name": name, "ts": ts, "dur": dur, "tid": tid, "cat": cat}

    events = [
        event("profiled steps", 100, 200, cat="user_annotation"),
        event("aten::linear", 110, 40),
        event("aten::addmm", 120, 20),  # inside it
        event("Forward 0", 110, 150, cat="user_annotation"),
        event("c10d::allreduce_", 200, 50),
        event("aten::mul", 260, 10),
        event("aten::add", 110, 190, tid=2),  # the loader
        event("aten::add", 20, 60),  # before
    ]
    assert busy_share(events) == (40 + 10) / 200


def test_a_table_has_the_medians_of_the_seeds() -> None:
    rows = [replace(ROW, seed=seed, runtime_s=runtime) for seed, runtime in ((1, 2.0), (2, 9.0), (3, 3.0))]
    assert [row.runtime_s for row in medians([*rows, FOUR])] == [3.0, 2.0]
    _, first, second = table_rows([*rows, replace(FOUR, gradient_noise_scale=None)])
    assert first == ("data 1", "1", "3.0", "50", "5.2500", "12.50", "75", "30", "50", "25", "40")
    assert second[-5:-3] == ("50 50 50 50", "")


def test_the_page_loads_nothing_and_says_what_too_few_cores_cannot_show() -> None:
    told = page_of([ROW, FOUR], "a <system>", "2 cores of a machine", 2)
    assert told.count("<svg") == 4
    for loading in ("<script", "src=", "href=", "url(", "@import"):
        assert loading not in told
    assert "a &lt;system&gt;" in told
    assert "Layouts do not train alike" in told  # 5.5 and 5.25
    assert "Layouts train alike" in " ".join(concluded([ROW, replace(FOUR, validation_loss=5.2501)], 2))
    assert "The speed of pipeline 4 with a core" in told
    assert "The speed of" not in " ".join(not_concluded([ROW, FOUR], 4))


def test_speeds_are_concluded_of_repeated_runs_only() -> None:
    two = replace(ROW, layout="data 2", ranks=2, samples_per_s=90.0)
    again = [replace(ROW, seed=2), replace(two, seed=2, samples_per_s=95.0)]
    assert "times as fast" not in " ".join(concluded([ROW, two], 2))
    assert "data 2 is 1.80 to 1.90 times as fast" in " ".join(concluded([ROW, two, *again], 2))


@pytest.mark.slow
def test_a_study_trains_alike_in_every_layout(
    tiny_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "four.json"
    content = json.loads(Path(tiny_file).read_text())
    content["model"]["layers"], content["data"]["global_batch_size"] = 4, 24
    path.write_text(json.dumps(content))
    out = tmp_path / "out"
    assert main(["lab", "parallel", "--system", str(path), "--steps", "5", "--json", "--out", str(out)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["layout"], row["ranks"]) for row in rows] == [
        ("data 1", 1), ("data 2", 2), ("data 4", 4), ("pipeline 2", 2), ("pipeline 4", 4),
    ]  # fmt: skip
    for row in rows:
        assert row["validation_loss"] == pytest.approx(rows[0]["validation_loss"], abs=1e-4)
        assert row["samples_per_s"] == pytest.approx(5 * 24 / row["runtime_s"])
        assert len(row["utilisation"]) == row["ranks"]
        assert all(0 < share < 1 for share in row["utilisation"])
        if noise := row["gradient_noise_scale"]:
            assert row["statistical_efficiency"] == pytest.approx((noise + 3) / (noise + 24))
        assert row["goodput"] == pytest.approx(row["samples_per_s"] * row["statistical_efficiency"])
        assert 0 < row["model_flop_utilisation"] < 1
        assert [samples for samples, _ in row["curve"]] == [0, 24, 48, 72, 120]
    assert "pipeline 4" in (out / "study.html").read_text()
