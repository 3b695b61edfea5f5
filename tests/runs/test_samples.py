"""Training samples of logs whose epoch_num counts them, and of the many in earlier rounds whose epoch_num doesn't."""

from pathlib import Path

import pytest

from bertbench.runs.sample_counts import sample_counts
from compliance.read.log import read_events
from compliance.read.run import RunFacts
from tests.compliance.logs import text
from tests.compliance.packages import line
from tests.compliance.published import logs
from tests.conftest import Answer, Printed

AZURE = "1.1 Azure/nd96amsr_a100_v4_n8_ngc21.09_pytorch 0"
BATCH = 448


def facts(path: Path, content: str) -> RunFacts:
    path.write_text(content)
    return RunFacts(read_events(path))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "result_0.txt"


def test_published_logs_give_the_samples_that_their_rounds_logged(log: Path) -> None:
    expected = {
        AZURE: (3_151_872, "train_samples"),
        "2.1 ASUSTeK/ESCN4A-E11 0": (None, "epoch_num"),
        "0.7 Google/tpu-v3-8192-TF 0": (None, None),  # epoch_num in steps, and no train_samples
    }
    for name, (last, source) in expected.items():
        found = sample_counts(facts(log, text(logs()[name].records)))
        assert (found.source, last in (None, found.samples[-1])) == (source, True), name
    for name, published in logs().items():
        found = sample_counts(facts(log, text(published.records)))
        assert found.source is None or (found.samples[-1] or 0) > 5e5, name  # nobody's steps or epochs are samples


def open_log(unit: int) -> str:
    """A small open run: 32 samples a step, evaluations every 100 steps, 5,000 steps at most; epoch_num in a unit."""
    start = [line("submission_division", "open"), line("global_batch_size", 32), line("run_start")]
    start.insert(0, line("opt_learning_rate_training_steps", 5_000))
    evaluated = [line("eval_accuracy", 0.1 * at, 1_000 * at, epoch_num=3_200 // unit * at) for at in (1, 2, 3)]
    return "\n".join([*start, *evaluated, line("train_samples", 9_600), line("run_stop", status="success")]) + "\n"


@pytest.mark.parametrize(("unit", "source"), [(1, "epoch_num"), (32, "train_samples")])
def test_a_small_open_run_counts_samples_below_its_number_of_steps(log: Path, unit: int, source: str) -> None:
    found = sample_counts(facts(log, open_log(unit)))
    assert (found.samples, found.source) == ([3_200, 6_400, 9_600], source)


def test_a_log_that_gives_no_samples_has_none_instead_of_one(log: Path, printed: Printed, answer: Answer) -> None:
    start = [line("submission_division", "open"), line("global_batch_size", BATCH), line("run_start")]
    evaluated = [line("eval_accuracy", 0.4 + number / 10, 1_000 * number, epoch_num=1) for number in range(1, 4)]
    log.write_text("\n".join([*start, *evaluated, line("run_stop", time_ms=4_000, status="success")]) + "\n")
    (group,) = answer("report", log)
    assert (group["runs"][0]["samples"], group["runs"][0]["samples_per_s"]) == (None, None)
    assert "epoch_num doesn't count samples in result_0; nothing else in the log states them" in printed("report", log)


def test_means_and_speeds_of_an_early_rounds_log_are_of_its_samples(
    log: Path, printed: Printed, answer: Answer
) -> None:
    log.write_text(text(logs()[AZURE].records))
    (group,) = answer("report", log, "--ruleset", "1.1.0")
    assert group["mean_samples_to_converge"] == 3_151_872
    assert group["runs"][0]["samples_per_s"] == pytest.approx(3_151_872 / group["runs"][0]["time_to_train_s"])
    shown = printed("report", log, "--ruleset", "1.1.0")
    assert "samples: epoch_num doesn't count samples in result_0; they are taken from train_samples" in shown
    assert "3,151,872 samples" in shown
    compared = answer("compare", log, log, "--ruleset", "1.1.0")
    assert compared["measures"][1]["a"]["mean"] == 3_151_872
