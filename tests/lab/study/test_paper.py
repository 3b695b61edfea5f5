"""The paper's claims: commands are asked once, and verdicts follow from their answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from lab.study.paper import PARTS, Part, run_parts
from lab.study.paper_claims import verdicts
from lab.study.paper_questions import questions
from tests.conftest import Answer, Printed

QUIET = Progress(False)
METHODS = ("none", "stratified", "stratified_presort", "stratified_presort_raster", "global_exchange", "planned")


def balanced(*methods: str, **efficiency: float) -> list[dict[str, Any]]:
    """Rows as `balance` prints them; 0.5 where no efficiency is given."""
    return [
        {
            "method": method,
            "batch": batch,
            "efficiency": efficiency.get(method, 0.5),
            "bytes_per_rank_per_step": 24e6 if method == "global_exchange" else 1e5,
        }
        for method in methods
        for batch in (2, 4, 8, 16, 48)
    ]


def compared(kind: str, ranks: int, low: float, high: float, **more: str) -> dict[str, Any]:
    difference = {"arm": f"{kind}_{ranks}", "against": "", "mean": (low + high) / 2, "low": low, "high": high}
    verdict = "fewer samples" if high < 0 else "no difference shown"
    return {"kind": kind, "ranks": ranks, "difference": difference, "reference": 1000.0, "verdict": verdict, **more}


def forecast(minutes: float, samples: int, communication: float) -> dict[str, Any]:
    return {
        "predicted_min": minutes,
        "range_min": [0.9 * minutes, 1.1 * minutes],
        "samples_to_converge": samples,
        "seconds": {"communication": communication},
    }


@pytest.fixture
def answers() -> dict[str, Any]:
    found: dict[str, Any] = {part.name: balanced("stratified", "stratified_presort", "presort") for part in PARTS}
    efficiency = {"stratified_presort": 0.95, "global_exchange": 0.99, "planned": 0.99}
    found["batch"] = balanced(*METHODS, **efficiency)
    found |= {name: forecast(0.5, 3_000_000, 1.0) for name in ("all_ideas", "without_bucket", "planned")}
    found |= {"without_balance": forecast(0.75, 3_000_000, 1.0), "without_adam": forecast(1.0, 5_000_000, 1.0)}
    found["clip"] = {
        "comparisons": [compared("before", 64, -200, -100), compared("bucket", 64, 100, 200)],
        "at_equal_values": [compared("before", 2, -20, 10, values_of="before_2")],
    }
    found["buckets"] = {
        "comparisons": [compared("4_buckets_e0", 5, -20, 40)],
    }
    found["overlap"] = [
        {"mode": mode, "bandwidth_mbit": speed, "hidden": hidden, "verdict": verdict}
        for speed, verdict in ((750.0, "less"), (2250.0, "not decided"))
        for mode, hidden in (("before", None), ("bucket", 0.3))
    ]
    found["causal"] = balanced(*METHODS, **efficiency)
    found["corpus"] = balanced(*METHODS, planned=1.0)
    return found


def test_a_part_is_asked_once_and_a_failure_keeps_what_ended(tmp_path: Path) -> None:
    parts = (Part("there", ("systems",)), Part("wrong", ("show", "nosuch")))
    for _ in range(2):
        with pytest.raises(RunError, match=r"`bertbench show nosuch` ended with code 2"):
            run_parts(tmp_path, parts, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
    (tmp_path / "there.json").write_text('["kept"]')
    assert run_parts(tmp_path, parts[:1], QUIET) == {"there": ["kept"]}


def test_verdicts_say_what_the_answers_bear(answers: dict[str, Any]) -> None:
    found = {one.claim: one for one in verdicts(answers)}
    clip = next(one for claim, one in found.items() if claim.startswith("clipping before"))
    assert clip.verdict == "on a small model, of 2 tests: fewer samples in 1, no difference shown in 1"
    assert clip.ours == (
        "64 ranks, each at its own values -15.0% (-20.0% to -10.0%); "
        "2 ranks, both at the values of before_2 -0.5% (-2.0% to +1.0%)"
    )
    assert [one.ours for one in verdicts(answers) if one.theirs in ("1.33", "1.57", "1.13")] == [
        "logs: 33.5 s over 25.1 s: 1.335", "logs: 39.4 s over 25.1 s: 1.571", "logs: 25.3 s over 22.3 s: 1.131",
    ]  # fmt: skip
    near = next(one for claim, one in found.items() if "nearly as a global sort" in claim)
    assert near.verdict == "simulated: within 5 % of a global sort at [2, 4, 8, 16, 48] samples a GPU"
    answers["batch"] = balanced(*METHODS)
    assert "refuted" in {one.verdict for one in verdicts(answers) if "snake" in one.claim}


def test_the_command_reads_the_answers_of_its_folder(
    answers: dict[str, Any], tmp_path: Path, answer: Answer, printed: Printed
) -> None:
    for name, content in answers.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    found = answer("lab", "paper", "--out", tmp_path)
    assert (len(found["claims"]), len(found["questions"])) == (11, 7)
    assert {row["name"]: row["share"] for row in found["ablation"]} == {
        "all_ideas": 1.0, "without_balance": 1.5, "without_bucket": 1.0, "without_adam": 2.0, "planned": 1.0
    }  # fmt: skip
    page = (tmp_path / "study.html").read_text()
    assert "What we had of the paper" in page
    assert all(part.command in page for part in PARTS)
    assert "33.5 s over 25.1 s" in printed("lab", "paper", "--out", tmp_path)


def test_every_question_is_answered_from_its_parts(answers: dict[str, Any]) -> None:
    found = questions(answers)
    assert {name for one in found for name in one.parts} <= {part.name for part in PARTS}
    by_part = {one.parts[-1]: one.answer for one in found}
    assert by_part["buckets"] == "samples less those of one bucket: 4_buckets_e0_5 +1.0% (-2.0% to +4.0%)"
    assert by_part["overlap"] == "750 Mbit/s: bucket 30%; 2,250 Mbit/s: bucket 30% (not decided)"
    assert by_part["corpus"] == "none 0.500, stratified_presort 0.500, planned 1.000"
    assert by_part["causal"] == "none 0.500, stratified_presort 0.950, planned 0.990"
    answers["overlap"] = []
    assert "needs Linux, root and iproute2" in str(questions(answers))


@pytest.mark.slow
def test_every_part_but_training_and_timing_is_a_command_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATADIR", str(tmp_path / "data"))
    quick = tuple(part for part in PARTS if part.words[0] != "lab")
    assert set(run_parts(tmp_path, quick, QUIET)) == {part.name for part in quick}
