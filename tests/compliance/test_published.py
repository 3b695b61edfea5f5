"""Logs of published results: the official verdict, and what our rules and questions add to it."""

from itertools import groupby
from pathlib import Path

import pytest
from mlperf_logging.rcp_checker import rcp_checker

from compliance import judge_result
from compliance.judge import Judgement, asked_together, judge_log
from tests.compliance.logs import judged, official_verdict, write
from tests.compliance.published import logs

LOGS = logs()
ITS_CLOCK_STOPPED_EARLY = "3.1 xFusion/G5500V7x8xL40S 2"
COUNTS_EPOCHS = "2.0 Baidu/XMan4.0_1_node_8_A100_PaddlePaddle 0"


@pytest.mark.parametrize("name", LOGS)
def test_a_published_log_has_the_official_verdict(tmp_path: Path, name: str) -> None:
    log = LOGS[name]
    judgement = judged(tmp_path, log.records, log.ruleset)
    assert judgement.official.verdict == official_verdict(tmp_path / "result_0.txt", log.ruleset)
    ours = "fail" if name == ITS_CLOCK_STOPPED_EARLY else judgement.official.verdict
    assert judgement.verdict == ours


def test_a_run_whose_clock_stops_before_the_target_fails_by_the_section_on_quality(tmp_path: Path) -> None:
    log = LOGS[ITS_CLOCK_STOPPED_EARLY]
    (breach,) = judged(tmp_path, log.records, log.ruleset).breaches
    assert (breach.rule.id, breach.rule.source.section) == ("target-on-clock", "Quality measure")


def test_at_most_one_in_fifty_published_logs_that_pass_raises_a_question(tmp_path: Path) -> None:
    judgements: list[Judgement] = []
    for result, runs in groupby(LOGS.items(), key=lambda named: named[1].result):
        folder = tmp_path / str(len(judgements))
        paths = [write(folder / f"result_{name.split()[-1]}.txt", log.records) for name, log in runs]
        ruleset = f"{result.split()[0]}.0"
        judgements += asked_together([judge_log(path, ruleset) for path in paths])
    passes = [judgement for judgement in judgements if judgement.verdict == "pass"]
    assert len(passes) > 140
    assert 50 * sum(bool(judgement.questions) for judgement in passes) <= len(passes)


def test_a_published_result_that_counts_epochs_fails_the_rcp_check_as_by_the_official_package_checker(
    tmp_path: Path,
) -> None:
    result = COUNTS_EPOCHS.removesuffix(" 0")
    folder = tmp_path / "results" / "toy" / "bert"
    for number in range(10):
        write(folder / f"result_{number}.txt", LOGS[f"{result} {number}"].records)
    result_verdict = judge_result(folder, "2.0.0")
    # without --rcp-bert-train-samples, which the submitter gave; no package records it
    official, *_ = rcp_checker.check_directory(str(folder), "training", "2.0.0", False, False, rcp_pass="pruned_rcps")
    assert result_verdict.convergence is not None
    assert not official
    assert not result_verdict.convergence.passed


def test_a_log_that_counts_epochs_is_noted(tmp_path: Path) -> None:
    judgement = judged(tmp_path, LOGS[COUNTS_EPOCHS].records, "2.0.0")
    assert ("epoch-num", True) in {(unchecked.rule, unchecked.asked) for unchecked in judgement.not_applied}
