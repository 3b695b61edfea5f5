"""The engine of studies, and clip modes over virtual ranks: what is tuned, stopped by rule, kept and shown."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertbench.cli import main
from bertbench.common.errors import ConfigError, RunError
from bertbench.common.progress import Progress
from lab.paths import STUDIES
from lab.study.clip_ranks import RanksDefinition, at_equal_values
from lab.study.definition import Stopping, read_study
from lab.study.engine import Arm, Budget, Outcome, RunTrial, Study, Values
from lab.study.language import Language

SMALL: dict[str, Any] = {
    "question": "Do clip modes differ at all?",
    "model": {
        "vocab_size": 7,
        "hidden_size": 8,
        "layers": 1,
        "attention_heads": 2,
        "feed_forward_size": 11,
        "max_positions": 8,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "words": {"followers": 2, "masked": 1, "held_out": 40},
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
    "schedule": {"max_steps": 30, "decay_steps": 60},
    "bucket_mb": 0.002,
    "global_batch_size": 8,
    "evaluation": {"target": 0.15, "interval_samples": 16},
    "space": {
        "learning_rate": {"low": 0.01, "high": 0.03},
        "max_norm": {"low": 0.05, "high": 0.1},
        "one_minus_beta1": {"low": 0.1, "high": 0.2},
        "one_minus_beta2": {"low": 0.1, "high": 0.2},
    },
    "tuning": {"trials": 2, "finalists": 1, "finalist_seeds": 1, "patience": 2.0},
    "stopping": {"half_width": 0.5, "first_look": 2, "look_every": 1, "max_seeds": 4},
}


def defined(**changes: object) -> RanksDefinition:
    return RanksDefinition.model_validate_json(json.dumps({**SMALL, **changes}))


def test_a_batch_is_the_same_however_many_ranks_share_it() -> None:
    language = Language(words=7, followers=2, length=8, masked=3)
    alone, apart = (language.shares(np.random.default_rng(3), 6, ranks) for ranks in (1, 3))
    assert len(apart) == 3
    assert torch.equal(alone[0].batch.tokens_T, torch.cat([share.batch.tokens_T for share in apart]))
    assert torch.equal(alone[0].batch.masked_labels_M, torch.cat([share.batch.masked_labels_M for share in apart]))
    offsets = [16 * rank + share.batch.masked_at_M for rank, share in enumerate(apart)]
    assert torch.equal(alone[0].batch.masked_at_M, torch.cat(offsets))
    assert (alone[0].batch.tokens_T[alone[0].batch.masked_at_M] == 0).all(), "the mask stands there"
    assert {share.part.masked_lm_weight for share in alone + apart} == {1 / 18}


def test_a_word_follows_from_the_one_before_except_where_a_half_is_unrelated() -> None:
    language = Language(words=31, followers=2, length=8, masked=1)
    words_SN, unrelated_S = language.sequences(np.random.default_rng(1), 500)
    seen: dict[int, set[int]] = {}
    for place in (1, 2, 3, 5, 6, 7):
        for before, after in zip(words_SN[:, place - 1], words_SN[:, place], strict=True):
            seen.setdefault(int(before), set()).add(int(after))
    assert max(map(len, seen.values())) == 2
    joined = [int(after) in seen[int(before)] for before, after in words_SN[:, 3:5]]
    assert all(np.array(joined)[unrelated_S == 0])
    assert np.mean(np.array(joined)[unrelated_S == 1]) < 0.2  # 2 of 30 by chance


def test_a_run_crosses_the_target_between_two_evaluations_and_depends_on_its_seed_alone() -> None:
    values = {"learning_rate": 0.03, "max_norm": 0.1, "one_minus_beta1": 0.1, "one_minus_beta2": 0.1}
    definition, arm = defined(), defined().arms((4,))[1]
    found = [definition.run_trial(arm, values, seed, 1e9) for seed in (1, 1, 2, 3, 4)]
    assert found[0] == found[1]
    assert len(set(found)) > 2
    assert any(outcome.samples is not None and outcome.samples % 8 for outcome in found), "between two steps"
    assert definition.run_trial(arm, values, 1, 8.0).samples is None, "stopped before an evaluation"


def study(folder: Path, run: RunTrial, **changes: object) -> Study:
    definition = defined(**changes)
    budget = Budget(dict(definition.space), definition.tuning, 240.0)
    return Study(definition, folder, definition.arms((2,)), run, Progress(False), budget)


def test_seeds_are_added_until_the_intervals_are_narrow(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []

    def run(arm: Arm, values: Values, seed: int, most: float) -> Outcome:
        """Of `before` 90 samples, else 100, and 10 more or fewer by seed for `bucket`: half-widths of 0 and some."""
        ran.append((arm.name, seed))
        noise = {"bucket": 10 * (-1) ** seed}.get(arm.choices["mode"], 0)
        return Outcome((90 if arm.choices["mode"] == "before" else 100) + noise, 0.2, 1.0, 1.0)

    # of `bucket` less `before` after n seeds, half is t(0.975, n - 1) * s / sqrt(n): 127, 28.7, 18.4
    stopping = Stopping(half_width=0.33, first_look=2, look_every=1, max_seeds=9)
    began = study(tmp_path, run)
    rows = began.rows_until(stopping)
    before, bucket = began.comparisons(rows)
    assert max(row["seed"] for row in rows) == 3
    assert (before.difference.mean, before.reference, before.half_width) == (-10, 100, 0)
    assert before.difference.verdict == "fewer samples"
    assert bucket.difference.high - bucket.difference.mean == pytest.approx(4.3027 * 11.547 / 3**0.5, rel=1e-3)
    assert len(ran) == len(set(ran)) + 3, "two trials of tuning have one seed"
    ran.clear()
    assert study(tmp_path, run).rows_until(stopping) == rows
    assert ran == [], "what ended is not run again"


def test_every_trial_is_recorded_with_the_code_and_machine_that_ran_it(tmp_path: Path) -> None:
    def run(*_: object) -> Outcome:
        return Outcome(100.0, 0.2, 1.0, 1.0)

    journal = tmp_path / "trials.jsonl"
    study(tmp_path, run).rows([1])
    first = [json.loads(line) for line in journal.read_text().splitlines()]
    for record in first:
        record["origin"]["commit"] = "before"
    journal.write_text("".join(json.dumps(record) + "\n" for record in first))
    later = study(tmp_path, run)
    later.rows([1, 2])
    assert [(origin["commit"] == "before", origin["trials"]) for origin in later.journal.origins] == [
        (True, len(first)),
        (False, 3),
    ]
    assert all(datetime.fromisoformat(record["ended"]).tzinfo for record in later.journal.records)


def test_the_first_failure_ends_the_other_trials_and_records_none_of_them(tmp_path: Path) -> None:
    def run(arm: Arm, values: Values, seed: int, most: float) -> Outcome:
        if arm.name == "bucket_2":
            raise RunError("bucket_2: the run failed")
        assert parallel.ending.wait(60)
        return Outcome(100.0, 0.2, 1.0, 1.0)

    parallel = study(tmp_path, run)
    parallel.parallel = 3
    with pytest.raises(RunError, match="bucket_2: the run failed"):
        parallel.rows([1])
    assert parallel.journal.records == []


def test_a_miss_costs_tuning_more_than_any_hit_and_is_left_out_of_means(tmp_path: Path) -> None:
    def run(arm: Arm, values: Values, seed: int, most: float) -> Outcome:
        return Outcome(None if values["max_norm"] > 0.075 or seed == 2 else 200.0, 0.1, 0.0, 0.0)

    found = study(tmp_path, run, tuning={**SMALL["tuning"], "trials": 8})
    rows = found.rows([1, 2, 3])
    assert all(found.values(arm.name)["max_norm"] <= 0.075 for arm in found.arms)
    assert [row["reached"] for row in rows if row["arm"] == "after"] == [True, False, True]
    assert {pair.seeds for pair in found.comparisons(rows)} == {2}


def test_at_equal_values_the_luck_of_a_search_is_gone(tmp_path: Path) -> None:
    """Samples follow the values alone; `before` alone finds good ones in tuning: only there its bad ones fail."""

    def run(arm: Arm, values: Values, seed: int, most: float) -> Outcome:
        good = values["max_norm"] > 0.075
        if seed >= 1000 and good == (arm.name == "after"):
            return Outcome(None, 0.1, 1.0, 1.0)
        return Outcome((100.0 if good else 200.0) + seed % 1000, 0.2, 1.0, 1.0)

    began = study(tmp_path, run, tuning={**SMALL["tuning"], "trials": 8})
    rows = began.rows([1, 2])
    tuned, (equal_rows, (equal, _)) = began.comparisons(rows)[0], at_equal_values(began, rows)
    assert (tuned.difference.mean, tuned.reference) == (-100, 201.5)
    assert (equal.difference.arm, equal.difference.against, equal.difference.mean) == ("before_2", "after", 0)
    assert equal.difference.verdict == "no difference shown"
    as_before = [row for row in equal_rows if row["arm"] == "after_as_before_2"]
    assert [row["samples_to_target"] for row in as_before] == [101, 102]


def test_the_command_goes_on_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "definition.json").write_text(json.dumps(SMALL))
    words = ["lab", "clip", "--ranks", "2,4", "--definition", str(tmp_path / "definition.json"), "--json"]
    words += ["--out", str(tmp_path / "out")]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [pair["difference"]["arm"] for pair in found["at_equal_values"]] == [
        "before_2",
        "bucket_2",
        "before_4",
        "bucket_4",
    ]
    assert [tuned["arm"] for tuned in found["tuned"]] == ["after", "before_2", "bucket_2", "before_4", "bucket_4"]
    assert {row["seed"] for row in found["rows"]} >= {1, 2}
    assert found["origin"]["torch"] == torch.__version__
    lines = tmp_path / "out" / "trials.jsonl"
    before = lines.read_text()
    cut = before.splitlines(keepends=True)[:-1]
    lines.write_text("".join(cut))
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == found["rows"], "a run that goes on finds the same"
    assert lines.read_text().splitlines()[:-1] == before.splitlines()[:-1], "only the missing trial is run"
    assert "Do clip modes differ" in (tmp_path / "out" / "study.html").read_text()


def test_a_folder_holds_one_study_whatever_version_began_it(tmp_path: Path) -> None:
    run_trial = defined().run_trial
    study(tmp_path, run_trial)
    note = tmp_path / "definition.json"
    content = json.loads(note.read_text())
    del content["optimizer"]["sharded"]  # as if it had been added since
    note.write_text(json.dumps(content))
    study(tmp_path, run_trial)
    with pytest.raises(ConfigError, match="holds another study"):
        study(tmp_path, run_trial, global_batch_size=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "3"], "--ranks 3: expected a divisor of the study's global batch, 8, of at least 2"),
        (["--ranks", "two"], "--ranks two: expected positive whole numbers"),
        (["--ranks", "2", "--seeds", "4"], "drop --seeds and --parallel"),
    ],
)
def test_a_mistake_is_one_message(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "definition.json").write_text(json.dumps(SMALL))
    words = ["lab", "clip", *options, "--definition", str(tmp_path / "definition.json"), "--out", str(tmp_path)]
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_the_study_that_comes_with_the_project_promises_three_percent() -> None:
    definition = read_study(STUDIES / "clip_ranks.json", RanksDefinition)
    assert definition.stopping.half_width == 0.03
    assert len(definition.arms((2, 16, 64))) == 7
