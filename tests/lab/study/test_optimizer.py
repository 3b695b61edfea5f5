"""Optimizers by samples to target: one stopping step, averages of the same runs, tuned alike, gone on with."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertbench.cli import main
from bertbench.common.errors import ConfigError
from lab.paths import STUDIES
from lab.study.definition import read_study
from lab.study.optimizer_compare import Comparison, pooled
from lab.study.optimizer_definition import Arm, Cell, OptimizerDefinition, Values
from lab.study.optimizer_run import WEIGHTS, Run, Until, run_group, train_checkpoint
from lab.study.stopping_step import Ratio, crossings, ratio, stopping_step

SMALL: dict[str, Any] = {
    "question": "Which optimizer is the fastest?",
    "model": {
        "vocab_size": 7,
        "hidden_size": 8,
        "layers": 1,
        "attention_heads": 2,
        "feed_forward_size": 12,
        "max_positions": 8,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.1,
    },
    "widths": [8, 16],
    "words": {"followers": 2, "masked": 1, "held_out": 40},
    "batches": [{"size": 8, "interval_samples": 16, "decay_samples": {"low": 120.0, "high": 240.0}}],
    "target": 0.16,
    "learning_rates": {"adam": {"low": 0.01, "high": 0.03}, "muon": {"low": 0.01, "high": 0.03}},
    "space": {
        "weight_decay": {"low": 0.001, "high": 0.01},
        "one_minus_beta1": {"low": 0.1, "high": 0.2},
        "one_minus_beta2": {"low": 0.02, "high": 0.1},
    },
    "epsilon": 1e-8,
    "ema_windows": [0.1, 0.2],
    "checkpoint": {"learning_rate": 0.01, "batch": 8, "accuracy": 0.15, "max_samples": 400, "decay_share": 0.5},
    "tuning": {"trials": 2, "finalists": 1, "finalist_seeds": 1, "patience": 1.5},
    "seeds": 3,
}
ARM = Arm("adam", Cell("random", 8, 8))
VALUES = Values(0.03, 0.01, 0.1, 0.05, 160.0)


def defined(**changes: object) -> OptimizerDefinition:
    return OptimizerDefinition.model_validate_json(json.dumps({**SMALL, **changes}))


def test_all_seeds_stop_at_the_one_step_where_their_mean_crosses_the_target() -> None:
    curves_NE = np.array([[0.0, 0.2, 0.6], [0.0, 0.4, 0.4]])
    # the mean is 0, 0.3, 0.5; by itself the first seed stops half way between its evaluations, the second at its second
    assert crossings(curves_NE, 0.4).tolist() == pytest.approx([1.5, 1.0])
    found = stopping_step(curves_NE, 0.4)
    # drawn twice, the second seed alone crosses at 1; any draw with the first in it crosses at 1.5
    assert (found.mean, found.low, found.high) == pytest.approx((1.5, 1.0, 1.5))


def test_a_seed_that_never_gets_there_counts_in_the_mean() -> None:
    curves_NE = np.array([[0.0, 0.9, 0.9], [0.0, 0.0, 0.2]])
    found = stopping_step(curves_NE, 0.5)
    assert found.mean == pytest.approx(1 + (0.5 - 0.45) / (0.55 - 0.45))
    assert found.high is None, "draws of the second seed alone don't get there"
    assert stopping_step(curves_NE, 0.6).mean is None
    assert stopping_step(np.array([[0.7, 0.8]]), 0.6).mean == 0


def test_a_ratio_draws_the_same_seeds_for_both_arms() -> None:
    curves_NE = np.array([[0.0, 0.5, 1.0, 1.0, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0]])
    slow_NE = np.array([[0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.125, 0.25, 0.375, 0.5]])  # half as fast, seed by seed
    same, slower = ratio(curves_NE, curves_NE, 0.25), ratio(slow_NE, curves_NE, 0.25)
    assert same is not None
    assert (same.mean, same.low, same.high, same.verdict) == (1, 1, 1, "no difference shown")
    assert slower is not None
    assert (slower.mean, slower.low, slower.high) == pytest.approx((2, 2, 2)), "all luck is common to both"
    assert (slower.verdict, Ratio(0.5, 0.4, 0.9).verdict) == ("more samples", "fewer samples")
    assert ratio(slow_NE, curves_NE, 0.9) is None, "0.75 at most"
    with pytest.raises(ValueError, match="2 seeds against 1"):
        ratio(curves_NE, slow_NE[:1], 0.25)


def test_cells_are_pooled_by_their_geometric_mean_with_students_interval_over_them() -> None:
    def comparison(mean: float | None) -> Comparison:
        found = None if mean is None else Ratio(mean, None, None)
        return Comparison("a", "b", found, None if mean is None else 2 * mean, None)

    found = pooled("muon", "adam", "all", [comparison(0.5), comparison(0.5), comparison(2)])
    # logarithms -a, -a, a with a = ln 2: mean -a / 3, deviation 2 a / sqrt(3); t of 2 degrees at 0.975 is 4.302653
    half = 4.302653 * 2 * math.log(2) / 3
    assert found.samples == pytest.approx(2 ** (-1 / 3))
    assert (found.low, found.high) == pytest.approx((2 ** (-1 / 3) / math.exp(half), 2 ** (-1 / 3) * math.exp(half)))
    assert found.seconds == pytest.approx(2 ** (2 / 3))
    assert found.verdict == "no difference shown"
    missed = pooled("muon", "adam", "all", [comparison(0.5), comparison(0.5), comparison(None)])
    assert missed.verdict == "not decided: the target was missed in 1 of 3 cells"


def test_an_average_read_out_beside_the_weights_is_that_of_a_run_of_its_own() -> None:
    definition = defined(target=0.99)
    both, weights, average = (
        run_group(definition, ARM, VALUES, [1], None, Until(dict.fromkeys(read_outs, math.inf)))
        for read_outs in ([0, 1, 2], [0], [2])
    )
    assert both.curves[0] == weights.curves[0]
    assert both.curves[2] == average.curves[2]
    # by hand: 160 samples are 20 steps, 0.2 of them 4, so the decay is 3/4, divided by 1 - d^t
    run, held_out = Run(definition, ARM, VALUES, 1, None, 2), definition.held_out()
    model, sums = run.model, [torch.zeros_like(parameter) for parameter in run.model.parameters()]
    for step in range(1, 21):
        run.step()
        for total, parameter in zip(sums, model.parameters(), strict=True):
            total.mul_(0.75).add_(parameter.detach(), alpha=0.25)
        if step % 2 == 0:
            assert run.accuracy(WEIGHTS, held_out) == both.curves[0][0][step // 2]
            assert run.accuracy(2, held_out) == both.curves[2][0][step // 2]
    with torch.no_grad():
        for total, parameter in zip(sums, model.parameters(), strict=True):
            parameter.copy_(total / (1 - 0.75**20))
    assert run.accuracy(WEIGHTS, held_out) == both.curves[2][0][10]


def test_seeds_side_by_side_are_the_runs_that_they_are_alone() -> None:
    definition, until = defined(target=0.99), Until({WEIGHTS: math.inf})
    together = run_group(definition, ARM, VALUES, [1, 2], None, until)
    alone = [run_group(definition, ARM, VALUES, [seed], None, until) for seed in (1, 2)]
    assert together.curves[WEIGHTS] == [one.curves[WEIGHTS][0] for one in alone]
    assert alone[0].curves != alone[1].curves
    assert len(together.curves[WEIGHTS][0]) == 11, "before the first step, and every 16 of 160 samples"


def test_runs_end_where_a_read_out_gives_up_or_the_slow_seeds_have_had_their_share() -> None:
    hopeless = run_group(defined(target=0.99), ARM, VALUES, [1], None, Until({WEIGHTS: 64.0}))
    assert len(hopeless.curves[WEIGHTS][0]) == 5
    definition = defined()
    long = run_group(definition, ARM, VALUES, [1, 2, 3], None, Until({WEIGHTS: math.inf}, 1e9))
    short = run_group(definition, ARM, VALUES, [1, 2, 3], None, Until({WEIGHTS: math.inf}))
    crossing = crossings(long.curves_of(WEIGHTS).mean(0, keepdims=True), 0.16)[0]
    assert short.curves_of(WEIGHTS).shape[1] == 1 + math.ceil(crossing)
    assert (long.curves_of(WEIGHTS) >= 0.16).any(1).all()


def test_all_optimizers_start_from_one_checkpoint() -> None:
    definition = defined(target=0.99)
    start = train_checkpoint(definition, 16)
    before = [parameter.clone() for parameter in start.parameters()]
    cell = Cell("checkpoint", 16, 8)
    groups = [
        run_group(definition, Arm(name, cell), VALUES, [1, 2], start, Until({WEIGHTS: math.inf}))
        for name in definition.learning_rates
    ]
    first = {own[0] for group in groups for own in group.curves[WEIGHTS]}
    assert len(first) == 1
    assert first.pop() >= 0.15
    assert all(torch.equal(parameter, old) for parameter, old in zip(start.parameters(), before, strict=True))
    with pytest.raises(ConfigError, match=r"no accuracy of 0\.9 within 400 samples at width 16"):
        train_checkpoint(defined(checkpoint={**SMALL["checkpoint"], "accuracy": 0.9}), 16)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The command of a small study."""
    (tmp_path / "definition.json").write_text(json.dumps(SMALL))
    return ["lab", "optimizer", "--definition", str(tmp_path / "definition.json"), "--out", str(tmp_path / "out")]


def test_the_command_goes_on_and_reports(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    arms = [one["arm"] for one in found["arms"]]
    assert len(arms) == 2 * 2 * 2 * 2, "optimizers, with an average and without, widths, starts"
    assert {"adam_random_w8_b8", "muon_ema_checkpoint_w16_b8"} <= set(arms)
    assert {(row["arm"], row["seed"]) for row in found["rows"]} == {(arm, seed) for arm in arms for seed in (1, 2, 3)}
    for row in found["rows"]:
        step = next(one["step_seconds"] for one in found["arms"] if one["arm"] == row["arm"])
        assert row["reached"] == (row["samples_to_target"] is not None)
        assert row["seconds_to_target"] == (row["samples_to_target"] / 8 * step if row["reached"] else None)
    lines = tmp_path / "out" / "trials.jsonl"
    before = lines.read_text()
    records = [json.loads(line) for line in before.splitlines()]
    for arm in {record["arm"] for record in records if record["kind"] != "seconds"}:
        kinds = [record["kind"] for record in records if record["arm"] == arm]
        assert kinds.count("tuning") == 2
        assert 1 <= kinds.count("comparison") <= 2, "a run serves both read-outs where they chose the same values"
    lines.write_text("".join(before.splitlines(keepends=True)[: len(records) // 2]))
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found, "a study that goes on finds the same"
    kept = len(records) // 2
    assert lines.read_text().splitlines()[:kept] == before.splitlines()[:kept]
    page = (tmp_path / "out" / "study.html").read_text()
    assert "One stopping step for all seeds" in page
    assert "common checkpoint, width 16, batch 8" in page
    assert main([*words, "--seeds", "4"]) == 2
    assert "holds another study" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, ["--seeds", "1"], "--seeds 1: expected at least 2"),
        ({"learning_rates": {"muon": {"low": 0.1, "high": 0.2}}}, [], "found no adam, which all others"),
        ({"batches": [{**SMALL["batches"][0], "interval_samples": 12}]}, [], "interval_samples 12 is no multiple of"),
        ({"words": {**SMALL["words"], "masked": 8}}, [], "must be even and above words.masked"),
    ],
)
def test_a_mistake_is_one_message(
    change: dict[str, object],
    options: list[str],
    message: str,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "definition.json").write_text(json.dumps({**SMALL, **change}))
    assert main([*words, *options]) == 2
    assert message in capsys.readouterr().err


def test_the_study_that_comes_with_the_project_tunes_all_alike() -> None:
    definition = read_study(STUDIES / "optimizer.json", OptimizerDefinition)
    assert len(definition.arms()) == 3 * 3 * 2 * 2
    assert definition.seeds == 10
    assert {round(bounds.high / bounds.low, 6) for bounds in definition.learning_rates.values()} == {8}
