import argparse
import json
import math
from pathlib import Path

import pytest

from bertbench.cli.main import main
from lab.bench.train_result import ratio_of_means
from lab.bench.whole_run import SetUp, Trained
from tests.conftest import Answer, Captured, Printed

NAMES = {
    "name", "seconds_to_target", "samples_to_target", "samples_per_s", "reached", "runs", "times_ours", "rate_ours",
}  # fmt: skip


@pytest.mark.slow
def test_ours_alone_stops_after_the_steps_asked_for(
    tiny_file: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Answer
) -> None:
    monkeypatch.setattr("lab.bench.time_to_target.importlib.util.find_spec", lambda _: argparse)
    monkeypatch.setattr("lab.bench.time_to_target.set_ups", list)
    monkeypatch.setattr(
        "sys.argv", ["bertbench", "lab", "time-to-target", "--record", "FILE", "tiny", "--out", "FOLDER"]
    )
    record, words = (
        tmp_path / "train.json",
        ["lab", "time-to-target", tiny_file, "--out", str(tmp_path / "runs"), "--json"],
    )
    assert main([*words, "--steps", "3", "--record", str(record)]) == 0
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out)
    assert set(row) == NAMES | {"command"}
    ours = {name: row[name] for name in NAMES}
    assert (ours["name"], ours["seconds_to_target"], ours["reached"]) == ("bertbench", None, False)
    assert ours["samples_per_s"] > 0
    assert "36 samples" in printed.err  # 3 steps of 12
    kept = json.loads(record.read_text())
    assert kept["results"] == [ours]
    assert kept["command"] == "bertbench lab time-to-target tiny"
    ((course,),) = kept["courses"].values()
    ((seconds, accuracy),) = course  # one evaluation, after the last step
    assert seconds > 0 and 0 <= accuracy <= 1

    monkeypatch.setattr("lab.bench.time_to_target.train_ours", lambda *_: pytest.fail("trained again"))
    assert answer(*words, "--steps", 3) == [row]  # from the journal
    assert main([*words, "--steps", "4"]) == 2
    assert "belongs to another study" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--baseline-sweep", "optimizer.rate=1"], "optimizer.rate"),
        (["--set", "squad.epochs=3"], "`bertbench finetune squad` reads that section"),
        (["--baseline-sweep", "optimizer.learning_rate"], "expected NAME=VALUE,VALUE"),
    ],
)
def test_a_mistake_is_one_message(tiny_file: str, printed: Printed, words: list[str], named: str) -> None:
    pytest.importorskip("transformers")
    assert named in printed("lab", "time-to-target", tiny_file, *words, code=2)


def test_the_trainer_runs_with_the_best_settings_of_its_trials(
    tiny_file: str, answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rates = {"": 10.0, "torch_compile": 5.0, "a worker": 20.0}
    needed = {"1e-3": (600, 900, None), "2e-3": (300, 300, 300), "4e-3": (None, 0, 0), "3e-3": (240, 450, 330)}
    asked: list[tuple[str, tuple[str, ...], int]] = []

    def ours(_: str, __: int | None, overrides: tuple[str, ...], seed: int) -> Trained:
        asked.append(("ours", tuple(overrides), seed))
        return Trained(2.0 + seed, 100, True, [])

    def baseline(_: str, steps: int | None, setup: SetUp, overrides: tuple[str, ...], seed: int) -> Trained:
        if steps:
            return Trained(1.0, int(rates[setup.extra] * setup.ranks), False, [])
        asked.append((setup.name, tuple(overrides), seed))
        rate = next((one.partition("=")[2] for one in overrides if "learning_rate" in one), "2e-3")
        samples = needed[rate][seed - 1001] if seed > 1000 else 300
        return Trained(6.0 + seed, samples or 900, samples is not None, [])

    monkeypatch.setattr("lab.bench.time_to_target.train_ours", ours)
    monkeypatch.setattr("lab.bench.time_to_target.train_baseline", baseline)
    monkeypatch.setattr("lab.bench.time_to_target.available_cores", lambda: 2)
    monkeypatch.setattr("lab.bench.time_to_target.importlib.util.find_spec", lambda _: argparse)
    words = ["--baseline-sweep", "optimizer.learning_rate=1e-3,2e-3,4e-3,3e-3", "--record", tmp_path / "train.json"]
    first, *_, equipped = answer("lab", "time-to-target", tiny_file, "--seeds", 2, *words)
    best = "optimizer.learning_rate=2e-3"
    trials, runs = asked[:12], asked[12:]
    trainer = trials[0][0]
    assert trainer.startswith("transformers Trainer, 2 processes") and trainer.endswith(", a worker")
    assert [(overrides, seed) for _, overrides, seed in trials] == [
        ((f"optimizer.learning_rate={value}",), seed) for value in needed for seed in (1001, 1002, 1003)
    ]
    assert {seed for *_, seed in runs} == {1, 2}
    assert [given for *given, seed in runs if seed == 1] == [
        ["ours", ()],
        ["ours", (best, "optimizer.name=adam", "optimizer.ema_decay=0")],
        [trainer, (best,)],
        [f"{trainer}, our Muon and initial weights", ()],
    ]
    assert (first["seconds_to_target"], first["samples_to_target"], first["runs"]) == (3.5, 100, 2)
    assert equipped["times_ours"][0] == round((7 * 8 / 3 / 4) ** 0.5, 4)
    kept = json.loads((tmp_path / "train.json").read_text())
    assert [trial["kind"] for trial in kept["tuning"]].count("sweep") == 12
    assert all(trial["origin"]["commit"] for trial in kept["tuning"])
    assert kept["settings"][trainer] == [best]
    assert kept["results"][-1]["rate_ours"][0] == round((7 * 8 / 9 / 3 / 4) ** 0.5, 4)


def test_the_interval_of_a_ratio_of_means_is_that_of_students_t_between_logarithms() -> None:
    # logarithms 0 and 2 beside 0 and 0: mean 1, standard error 1, one degree of freedom, quantile 12.7062
    squared = math.exp(2)
    ends = (math.exp(-11.7062), math.exp(13.7062))
    assert ratio_of_means([1.0, squared], [1.0, 1.0]) == pytest.approx((math.e, *ends), rel=1e-4, abs=1e-4)
    assert ratio_of_means([3.0], [1.5]) == (2, None, None)


@pytest.mark.slow
def test_the_trainer_stops_at_the_target_or_after_its_last_step(
    tiny_file: str, answer: Answer, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    chosen = [SetUp(extra="a worker"), SetUp(2)]
    monkeypatch.setattr("lab.bench.time_to_target.set_ups", lambda: chosen)
    monkeypatch.setattr("lab.bench.time_to_target.SCREENED_STEPS", 3)
    rows = answer("lab", "time-to-target", tiny_file, "--set", "evaluation.target=0.001")
    assert [row["samples_to_target"] for row in rows] == [36] * 4  # 25, rounded up to whole steps of 12
    said = printed("lab", "time-to-target", tiny_file, "--set", "evaluation.target=0.999", code=1)
    assert "the Trainer reached the target with every seed for no values" in said
