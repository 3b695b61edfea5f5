"""Studies of a system: real runs, the median pruner, and the values as words of --set."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bertbench.common.errors import RunError
from lab.study.definition import Prune, Range, Values
from lab.study.search import Search
from lab.study.system_run import check_formats, run_on_system
from tests.conftest import Answer, Printed

SETTINGS = {"evaluation.target": 1e-4, "schedule.max_steps": 60, "checkpoint.final_weights": False}
STUDY = {
    "question": "Does LAMB need fewer samples?",
    "system": "cpu_demo",
    "setting": {**SETTINGS, "evaluation.interval_samples": 24},
    "arms": {"adam": {"optimizer.name": "adam"}, "lamb": {"optimizer.name": "lamb"}},
    "space": {"optimizer.learning_rate": {"low": 1e-4, "high": 1e-3}},
    "tuning": {"trials": 2, "patience": 2.0},
    "comparisons": [{"arm": "lamb", "against": "adam"}],
    "seeds": 1,
}


def searched(courses: Sequence[Sequence[float]], live: bool) -> tuple[Search, list[int]]:
    """Search with these accuracies of each trial, 100 samples apart, and return the evaluations that each saw.

    `live` reports an evaluation when the run makes it and again from the journal, as a study does.
    """
    seen: list[int] = []
    left = iter(courses)

    def score(_: Values, prune: Prune) -> float | None:
        course = [(100.0 * number, accuracy) for number, accuracy in enumerate(next(left), 1)]
        if live:
            kept = 1 + next((place for place, one in enumerate(course) if prune(*one)), len(course) - 1)
            course = course[:kept]
        seen.append(len(course))
        return None if any(prune(*evaluation) for evaluation in course) else course[-1][0]

    search = Search({"x": Range(low=1, high=2)}, len(courses), 5)
    search.best(score)
    return search, seen


def test_a_run_below_the_median_is_pruned_after_the_random_half_and_the_journal_gives_the_same() -> None:
    courses = [[0.1, 0.3, 0.5], [0.1, 0.2, 0.5], [0.2, 0.2, 0.2], [0.1, 0.1, 0.4]]
    found, seen = searched(courses, live=True)
    # the first two are random; the third is above both after 100 samples and below their median after 200 (0.25)
    assert seen == [3, 3, 2, 2]
    narrowed = found.narrowed()
    assert narrowed["random_trials"] == 2
    assert narrowed["pruned"] == [{"trial": 3, "samples": 200}, {"trial": 4, "samples": 200}]
    again, _ = searched([course[:count] for course, count in zip(courses, seen, strict=True)], live=False)
    assert again.narrowed() == narrowed


def test_no_run_is_pruned_in_the_first_quarter_of_the_best_one_s_samples() -> None:
    rising = [0.1, 0.1, 0.1, 0.1, 0.2, 0.3, 0.4, 0.5]
    low = [0.0] * len(rising)
    found, _ = searched([rising, rising, low, low], live=True)
    # a quarter of 800 samples is 200, and a pruner looks from there on
    assert found.narrowed()["pruned"] == [{"trial": 3, "samples": 200}, {"trial": 4, "samples": 200}]


@pytest.mark.slow
def test_a_study_of_a_system_tunes_it_resumes_and_prints_words_of_set(
    tiny_file: str, printed: Printed, answer: Answer, tmp_path: Path
) -> None:
    definition = tmp_path / "definition.json"
    definition.write_text(json.dumps(STUDY))
    words = ["lab", "study", definition, "--system", tiny_file, "--out", tmp_path / "out"]
    said = printed(*words)
    trials = tmp_path / "out" / "trials.jsonl"
    ran = trials.read_text()
    assert len(ran.splitlines()) == 2 * (2 + 1), "two trials of tuning and one of the comparison for each optimizer"
    record = answer(*words)
    assert trials.read_text() == ran
    rates = {tuned["arm"]: tuned["optimizer.learning_rate"] for tuned in record["tuned"]}
    for name, rate in rates.items():
        assert f"{name}: --set optimizer.learning_rate={rate}" in said
    # steps of 12 samples: the first evaluation is after 24, and any accuracy reaches the target
    assert {row["samples_to_target"] for row in record["rows"]} == {24.0}
    assert (tmp_path / "out" / "trials.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_a_run_ends_at_the_evaluation_that_prunes_it_and_at_a_number_of_samples(tiny_file: str) -> None:
    settings = {"schedule.max_steps": 100_000, "evaluation.interval_samples": 24, "evaluation.target": 0.999999}
    pruned = run_on_system(tiny_file, settings, 1, prune=lambda samples, _: samples >= 48)
    assert pruned.samples is None
    assert pruned.course[1][0] == 48
    assert pruned.course[-1][0] < 1_200_000
    limited = run_on_system(tiny_file, settings, 1, most_samples=36)
    assert (limited.samples, limited.course[-1][0]) == (None, 36)


def test_a_run_that_took_another_format_is_an_error_that_says_which() -> None:
    arithmetic = {"precision": "bf16", "residual": "fp32", "refused": ["fp8 differs too much"]}
    check_formats({"precision.compute": "bf16", "precision.residual": "auto"}, arithmetic, 4)
    says = r"seed 4: expected precision\.compute fp8, but the run took bf16 \(fp8 differs too much\)"
    with pytest.raises(RunError, match=says):
        check_formats({"precision.compute": "fp8"}, arithmetic, 4)


def test_a_study_of_the_language_refuses_a_system(tiny_file: str, printed: Printed) -> None:
    said = printed("lab", "study", "clip", "--system", tiny_file, code=2)
    assert f"--system {tiny_file}: clip trains a made-up language" in said
