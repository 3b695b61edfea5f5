"""Logs of published results: what strictness must not hold against them, and what it rightly finds."""

from copy import deepcopy
from itertools import groupby
from pathlib import Path

import pytest

from compliance import alike, together
from tests.compliance.logs import Record, at, judged, places, write
from tests.compliance.mutations import from_key
from tests.compliance.published import logs

LOGS = logs()
STEADY, COUNTS_EPOCHS, ONE_NODE = (
    "3.0 NVIDIA/dgxh100_n64_ngc23.04_pytorch 0", "2.0 Baidu/XMan4.0_1_node_8_A100_PaddlePaddle 0",
    "3.1 xFusion/G5500V7x8xL40S 1",
)  # fmt: skip
# What a referee must ask about; of all others nothing is said but that they count no samples.
GENUINE = {
    "1.0 Inspur/nf5488a5_pytorch 1": {"run-success", "target"},  # it didn't converge; nor did the two below
    "2.0 Baidu/XMan4.0_1_node_8_A100_PaddlePaddle 6": {"run-success", "target"},
    "3.0 NVIDIA/dgxh100_n64_ngc23.04_pytorch 4": {"run-success", "target"},
    # open, from a checkpoint after 126 million samples, which epoch_num counts
    "1.1 Google/tpu-v4-4096-TF 0": {"pace", "noise"},
    "1.1 Google/tpu-v4-4096-TF 1": {"pace"},
    # its clock stopped before the target: see docs/compliance.md
    "3.1 xFusion/G5500V7x8xL40S 2": {"target-on-clock", "on-clock", "noise", "samples"},
}


def of(name: str) -> list[Record]:
    """A log's records, to change."""
    return deepcopy(LOGS[name].records)


@pytest.mark.parametrize("name", LOGS)
def test_a_published_log_passes_with_what_its_counts_hide_at_most(tmp_path: Path, name: str) -> None:
    log = LOGS[name]
    counts = [one["metadata"].get("epoch_num") for one in log.records if one["key"] == "eval_accuracy"]
    constant = len(counts) > 1 and len(set(counts)) == 1
    judgement = judged(tmp_path, log.records, log.ruleset)
    rules = {finding.rule for finding in judgement.findings} - {"official"}
    assert rules == GENUINE.get(name, set()) | ({"epoch-num"} if constant else set())


def test_what_counts_of_epochs_hide_is_listed(tmp_path: Path) -> None:
    judgement = judged(tmp_path, of(COUNTS_EPOCHS), "2.0.0")
    assert {"cadence", "samples"} <= {rule for rule, _ in judgement.not_applied}


@pytest.mark.parametrize("name", [ONE_NODE, "1.0 Habana/SYS-420GH-TNGR 1"])
def test_a_clock_of_whole_seconds_repeats_itself(tmp_path: Path, name: str) -> None:
    records = [one | {"time_ms": round(one["time_ms"], -3)} for one in LOGS[name].records]
    assert judged(tmp_path, records, LOGS[name].ruleset).findings == ()


def test_no_run_of_a_published_result_is_taken_for_a_copy(tmp_path: Path) -> None:
    for result, runs in groupby(LOGS.items(), key=lambda named: named[1].result):
        traces = [
            together.judged(write(tmp_path / "result_0.txt", log.records), name, log.ruleset)[1] for name, log in runs
        ]
        assert [finding.found for finding in alike.copies(traces)] == [], result


def test_a_run_that_stops_its_clock_two_evaluations_early_is_found_as_in_a_published_result(tmp_path: Path) -> None:
    records = of(ONE_NODE)
    stop = records.pop(at(records, "run_stop"))
    stopped = at(records, "eval_accuracy", -3)
    stop["time_ms"] = records[stopped]["time_ms"] + 1
    judgement = judged(tmp_path, [*records[: stopped + 1], stop, *records[stopped + 1 :]], "3.0.0")
    rules = {finding.rule for finding in judgement.findings if finding.severity == "error"}
    assert "target-on-clock" in rules


@pytest.mark.parametrize("name", [STEADY, COUNTS_EPOCHS, ONE_NODE])
@pytest.mark.parametrize("accuracy", [0.7202, 0.7203333721160889])
def test_an_invented_accuracy_is_no_whole_number_of_predictions(tmp_path: Path, name: str, accuracy: float) -> None:
    records = of(name)
    records[at(records, "eval_accuracy", -1)]["value"] = accuracy
    line = at(records, "eval_accuracy", -1) + 1
    assert ("noise", line) in places(judged(tmp_path, records, "3.0.0"))


def test_four_tenths_of_a_second_cut_from_a_steady_run_show_against_its_own_spread(tmp_path: Path) -> None:
    records = of(STEADY)
    cut = at(records, "eval_accuracy", 8)
    from_key("eval_accuracy", -480, 8)(records)
    assert ("pace", cut + 1) in places(judged(tmp_path, records, "3.0.0"))
