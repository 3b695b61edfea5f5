"""The engine of studies: tuning, stopping rules, comparisons, records and output."""

import json
import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from bertbench.common.errors import ConfigError
from bertbench.common.intervals import holm, of_geometric_mean, of_mean
from bertbench.common.progress import Progress
from lab.commands.study import check_configurations
from lab.study.definition import STUDIES, Configuration, Values, read_definition
from lab.study.engine import Study, TrialOutcome
from lab.study.intervals import compare_configurations, verdict
from tests.conftest import Answer, Printed
from tests.lab.study.settings import SETTING, STUDY, defined

T_OF_2 = 4.302653  # Student's t of 2 degrees of freedom at 0.975


def study(folder: Path, samples: Callable[[Configuration, Values, int], float | None], **changes: object) -> Study:
    """The study with changes, whose trials take these samples to the target, or miss it."""

    def run(configuration: Configuration, values: Values, seed: int, *_: object) -> TrialOutcome:
        needed = samples(configuration, values, seed)
        return TrialOutcome(needed, 0.1, 1.0, 1.0, 2 * (needed or 0.0))

    return Study(defined(**changes), folder, run, Progress(False))


def rows_of(**samples: list[float | None]) -> list[dict[str, Any]]:
    return [
        {"arm": arm, "seed": seed, "samples_to_target": number}
        for arm, own in samples.items()
        for seed, number in enumerate(own, start=1)
    ]


def test_a_difference_is_taken_seed_by_seed_with_students_interval() -> None:
    assert of_mean([10, 12, 14]).half_width == pytest.approx(T_OF_2 * 2 / math.sqrt(3), rel=1e-6)
    assert of_mean([20]).half_width is None
    rows = rows_of(a=[10, 12, 14], b=[30, 34, 35], c=[None, 20, None], d=[9, 12, None])
    pair = compare_configurations(rows, "a", "b")
    assert pair is not None
    half = T_OF_2 / math.sqrt(3)  # -20, -22, -21: standard deviation 1
    assert [pair["difference"][end] for end in ("mean", "low", "high")] == pytest.approx([-21, -21 - half, -21 + half])
    assert (pair["ratio"], pair["ratio_high"]) == pytest.approx((12 / 33, (12 + half) / 33))
    assert (pair["reference"], pair["seeds"], pair["missed"]) == (33, 3, 0)
    # t = 21 sqrt(3); of 2 degrees of freedom p = 1 - t / sqrt(2 + t^2)
    assert pair["p"] == pytest.approx(1 - 21 * 3**0.5 / (2 + 3 * 21**2) ** 0.5)
    assert compare_configurations(rows, "a", "c") is None, "c reached the target with one seed only"
    assert (verdict(pair, 0.049), verdict(pair, 0.051)) == ("fewer samples", "no difference shown")
    missed = compare_configurations(rows, "a", "d")
    assert missed is not None
    assert verdict(missed, 0.0) == "not decided: 1 of 3 seeds missed the target"


def test_p_values_are_corrected_for_the_number_of_tests() -> None:
    # Holm: the least times 3, the next times 2, and none below the one before
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.5]) == [1.0, 1.0]


def test_ratios_are_pooled_by_their_geometric_mean() -> None:
    # logarithms -a, -a, a with a = ln 2: mean -a / 3, deviation 2 a / sqrt(3)
    mean, half = 2 ** (-1 / 3), T_OF_2 * 2 * math.log(2) / 3
    assert of_geometric_mean([0.5, 0.5, 2]) == pytest.approx((mean, mean / math.exp(half), mean * math.exp(half)))


def test_a_finished_trial_is_not_run_again(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []

    def samples(configuration: Configuration, values: Values, seed: int) -> float:
        ran.append((configuration.name, seed))
        return 90.0 if configuration.kind == "before" else 100.0

    began = study(tmp_path, samples)
    rows = began.rows([1, 2, 3])
    assert [(pair["difference"]["mean"], pair["p"]) for pair in began.comparisons(rows)] == [(-10, 0), (10, 0)]
    assert len(ran) == len(set(ran)) + 3, "two trials of tuning have one seed"
    ran.clear()
    assert study(tmp_path, samples).rows([1, 2, 3]) == rows
    assert ran == []


def test_every_trial_is_recorded_with_the_code_and_machine_that_ran_it(tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    study(tmp_path, lambda *_: 100.0).rows([1])
    first = [json.loads(line) for line in journal.read_text().splitlines()]
    for record in first:
        record["origin"]["commit"] = "before"
    journal.write_text("".join(json.dumps(record) + "\n" for record in first))
    later = study(tmp_path, lambda *_: 100.0)
    later.rows([1, 2])
    assert [(origin["commit"] == "before", origin["trials"]) for origin in later.journal.origins] == [
        (True, len(first)),
        (False, 3),
    ]
    assert all(datetime.fromisoformat(record["ended"]).tzinfo for record in later.journal.records)


def test_a_miss_costs_tuning_more_than_any_hit_and_leaves_a_comparison_undecided(tmp_path: Path) -> None:
    def samples(configuration: Configuration, values: Values, seed: int) -> float | None:
        assert 0.8 <= values["optimizer.beta1"] <= 0.9
        return None if values["max_norm"] > 0.075 or seed in (2, 1001) else 200.0

    found = study(tmp_path, samples, tuning={"trials": 8, "seeds": 1, "patience": 2.0}, equal_values=False)
    record = found.record(found.rows([1, 2, 3]))
    assert all(values["max_norm"] <= 0.075 for values in found.values.values())
    assert [row["reached"] for row in record["rows"] if row["arm"] == "after"] == [True, False, True]
    assert {pair["verdict"] for pair in record["comparisons"]} == {"not decided: 1 of 3 seeds missed the target"}
    both = study(tmp_path / "seeds", samples, tuning={"trials": 2, "seeds": 2, "patience": 2.0})
    both.rows([1])
    tried = [trial["seed"] for trial in both.journal.records if trial["kind"] == "tuning" and trial["max_norm"] > 0.075]
    assert 1001 not in tried, "the first miss ends a trial"


def test_in_tuning_no_run_counts_less_than_the_value_that_bounds_it(tmp_path: Path) -> None:
    """All runs take 100 samples, or more with a short decay; without the bound, longer decays would be as good."""

    def samples(configuration: Configuration, values: Values, seed: int) -> float:
        return max(100.0, 200 - values["decay_samples"])

    space = {"decay_samples": {"low": 10.0, "high": 1000.0}}
    tuning = {"trials": 20, "patience": 2.0, "at_least": "decay_samples"}
    found = study(tmp_path, samples, space=space, tuning=tuning, equal_values=False)
    record = found.record(found.rows([1, 2]))
    assert all(80 < values["decay_samples"] < 120 for values in found.values.values())
    assert record["arms"][0]["samples_to_target"] < 120, "the comparison counts samples to the target alone"


def test_at_equal_values_the_luck_of_a_search_cancels(tmp_path: Path) -> None:
    """Samples depend only on the values. Tuning finds good ones only for `before`, whose bad values fail there."""

    def samples(configuration: Configuration, values: Values, seed: int) -> float | None:
        good = values["max_norm"] > 0.075
        if seed >= 1000 and good == (configuration.name == "after"):
            return None
        return (100.0 if good else 200.0) + seed % 1000

    began = study(tmp_path, samples, tuning={"trials": 8, "patience": 2.0})
    record = began.record(began.rows([1, 2]))
    tuned, equal = record["comparisons"][0], record["at_equal_values"][:2]
    assert (tuned["difference"]["mean"], tuned["reference"]) == (-100, 201.5)
    assert (tuned["ratio"], tuned["seconds_ratio"]) == pytest.approx((101.5 / 201.5, 101.5 / 201.5))
    assert [(pair["values_of"], pair["reference"], pair["verdict"]) for pair in equal] == [
        ("before", 101.5, "no difference shown"), ("after", 201.5, "no difference shown")
    ]  # fmt: skip
    assert [pair["seconds_ratio"] for pair in equal] == [1, 1]


def test_configurations_are_compared_in_every_cell_and_pooled_by_level(tmp_path: Path) -> None:
    cells = {
        "width": {"narrow": {}, "wide": {"model.hidden_size": 16}},
        "ranks": {"2": {"ranks": 2}, "4": {"ranks": 4}},
    }

    def samples(configuration: Configuration, values: Values, seed: int) -> float:
        is_wide = configuration.cell["width"] == "wide"
        assert configuration.settings.get("model.hidden_size", 8) == (16 if is_wide else 8)
        return (100.0 if configuration.kind != "before" else 200.0 if is_wide else 50.0) + seed / 100

    found = study(tmp_path, samples, cells=cells, equal_values=False)
    record = found.record(found.rows([1, 2]))
    assert len(record["arms"]) == 3 * 4
    pooled = {(one["arm"], one["cells"]): one for one in record["pooled"]}
    for cells, samples, decided in (("all", 1, "no difference shown"), ("width wide", 2, "more samples")):
        assert pooled["before", cells]["samples"] == pytest.approx(samples, rel=1e-3)
        assert pooled["before", cells]["verdict"] == decided
    assert pooled["before", "ranks 2"]["total"] == 2


def test_the_command_resumes_and_reports(tmp_path: Path, answer: Answer, printed: Printed) -> None:
    path, out = tmp_path / "definition.json", tmp_path / "out"
    cells = {"ranks": {"2": {"ranks": 2}, "4": {"ranks": 4}}}
    path.write_text(json.dumps({**STUDY, "cells": cells}))
    words = ["lab", "study", path, "--out", out]
    found = answer(*words)
    assert [pair["difference"]["arm"] for pair in found["comparisons"]] == [
        "before_2", "bucket_2", "before_4", "bucket_4"
    ]  # fmt: skip
    assert found["at_equal_values"] == [], "a search of two random trials finds the same values for both sides"
    assert [pair["ranks"] for pair in found["comparisons"]] == [2, 2, 4, 4]
    assert {row["seed"] for row in found["rows"]} == {1, 2}
    assert found["origin"]["torch"] == torch.__version__
    lines = out / "trials.jsonl"
    before = lines.read_text()
    lines.write_text("".join(before.splitlines(keepends=True)[:-1]))
    assert printed(*words).split()[0] == "configuration"
    assert lines.read_text().splitlines()[:-1] == before.splitlines()[:-1], "only the missing trial is run"
    assert "Do clip modes differ" in found["question"]


def test_a_folder_holds_one_study(tmp_path: Path) -> None:
    study(tmp_path, lambda *_: 1.0)
    study(tmp_path, lambda *_: 1.0)
    with pytest.raises(ConfigError, match="belongs to another study"):
        study(tmp_path, lambda *_: 1.0, seeds=7)


def test_a_value_at_the_edge_of_its_range_is_named(tmp_path: Path) -> None:
    found = study(tmp_path, lambda *_: 1.0)
    rows = found.rows([1, 2])
    for values in found.values.values():
        values.update({"optimizer.learning_rate": 0.0101, "max_norm": 0.07, "optimizer.beta1": 0.801})
    assert found.record([*rows])["tuned"][0]["at_edge"] == ["optimizer.learning_rate", "optimizer.beta1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells": {"ranks": {"3": {"ranks": 3}}}}, "ranks 3 don't divide global_batch_size 8"),
        ({"comparisons": [{"arm": "after", "against": "y"}]}, "found no configuration y"),
        ({"comparisons": [{"arm": "x", "against": "after"}]}, "found no configuration x; choose from after"),
        ({"arms": {"only": {}}}, "arms: dictionary should have at least 2 items"),
        ({"space": {"max_norm": {"low": 2, "high": 1}}}, "low 2 is not below high 1"),
        ({"tuning": None}, "found ranges to tune but no budget"),
        ({"tuning": {**STUDY["tuning"], "at_least": "x"}}, "tuning.at_least: x isn't tuned in every arm"),
        ({"setting": {**SETTING, "evaluation": {"interval_samples": 12}}}, "12 is not a multiple of"),
    ],
)
def test_a_mistake_in_a_definition_is_one_message(
    change: dict[str, object], message: str, tmp_path: Path, printed: Printed
) -> None:
    path = tmp_path / "definition.json"
    path.write_text(json.dumps({**STUDY, **change}))
    assert message in printed("lab", "study", path, "--out", tmp_path / "out", code=2)


def test_a_study_that_is_neither_a_name_nor_a_file_is_one_message(printed: Printed) -> None:
    said = printed("lab", "study", "optimiser", code=2)
    assert "optimiser: found neither a study of this name nor a file; choose from adam_and_lamb, batch" in said


def test_the_studies_that_come_with_the_project_are_complete() -> None:
    definitions = [read_definition(path) for path in STUDIES.glob("*.json")]
    assert definitions
    for definition in definitions:
        assert len(definition.configurations()) >= 2
        check_configurations(definition)
