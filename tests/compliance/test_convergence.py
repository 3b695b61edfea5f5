"""Samples to converge in a closed package, judged by the official reference convergence points (RCP).

At batch size 448 the reference needs 2,414,421 samples, and 2,274,732 are accepted (rulesets 2.1 to 5.0). The runs of
these packages evaluate every 150,000 samples: 15, 16 and 17 evaluations are 2,250,304, 2,400,384 and 2,550,016 samples.
"""

import json
import time
from pathlib import Path

import pytest
from mlperf_logging.rcp_checker import rcp_checker

from compliance.official.tools import Convergence
from tests.compliance.mutations import Mutation, added, appended, change_file, every, metadata_of, setting
from tests.compliance.packages import (
    START,
    SYSTEM,
    breached_rules,
    judged,
    lacking_evidence,
    line,
    official_package_checker,
    rewrite,
    write_package,
)

TOO_FEW = 14  # evaluations


def convergence(root: Path) -> Convergence:
    """The official verdict on the package's only result."""
    (result,) = judged(root).results
    assert result.convergence is not None
    return result.convergence


@pytest.mark.parametrize(("evaluations", "passes"), [(15, False), (16, True)])
def test_convergence_is_judged_as_the_official_package_checker_does(
    tmp_path: Path, evaluations: int, passes: bool
) -> None:
    write_package(tmp_path / "org", evaluations=evaluations)
    assert judged(tmp_path / "org").verdict == ("pass" if passes else "fail")
    assert official_package_checker(tmp_path / "org", tmp_path).passed == passes


def test_a_result_that_converges_a_little_sooner_is_scaled_as_the_official_package_checker_does(
    tmp_path: Path,
) -> None:
    write_package(tmp_path / "org", evaluations=16)
    scaling = convergence(tmp_path / "org").scaling
    assert scaling == pytest.approx(2_414_421 / 2_400_384, rel=1e-6)
    assert scaling == pytest.approx(official_package_checker(tmp_path / "org", tmp_path).scaling, rel=1e-9)


def test_an_odd_field_in_the_description_does_not_disable_the_checks_of_the_runs(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=TOO_FEW)
    description = json.loads((tmp_path / SYSTEM).read_text())
    (tmp_path / SYSTEM).write_text(json.dumps(description | {"division": ["?"]}))
    change_file(logs / "result_3.txt", setting("seed", 8))
    assert breached_rules(tmp_path) >= {"convergence", "seed"}


def test_a_capitalised_division_as_in_the_submission_rules_does_not_disable_the_check(tmp_path: Path) -> None:
    write_package(tmp_path, evaluations=TOO_FEW)
    rewrite(tmp_path / SYSTEM, '"closed"', '"Closed"')
    assert breached_rules(tmp_path) == {"convergence"}


def test_a_note_that_names_the_key_of_accuracies_is_not_an_evaluation(tmp_path: Path) -> None:
    # enough samples for the reference, and the official tool takes any line that mentions the key
    note = added("run_stop", START + 99_000, "note", "not an eval_accuracy", {"epoch_num": 2_600_000})
    for log in write_package(tmp_path, evaluations=TOO_FEW).iterdir():
        change_file(log, note)
    assert "convergence" in breached_rules(tmp_path)


def test_a_long_value_does_not_hang_the_check(tmp_path: Path) -> None:
    log = write_package(tmp_path) / "result_3.txt"
    log.write_text(line("note", ":::MLLOG" + "x" * 700_000) + "\n" + log.read_text())
    began = time.process_time()
    assert convergence(tmp_path).passed
    assert time.process_time() - began < 20  # the official tool alone takes minutes


def test_a_package_that_counts_epochs_fails_as_by_the_official_package_checker(tmp_path: Path) -> None:
    # epoch_num is the number of the only epoch, as in some published logs; train_samples has the samples
    in_epochs = every("eval_accuracy", lambda _, one: one["metadata"].update(epoch_num=1))
    for log in write_package(tmp_path / "org").iterdir():
        change_file(log, in_epochs)
    assert not official_package_checker(tmp_path / "org", tmp_path).passed
    assert breached_rules(tmp_path / "org") == {"convergence"}


@pytest.mark.parametrize(
    "change",
    [
        metadata_of("eval_accuracy", "epoch_num", 1, -1),
        metadata_of("eval_accuracy", "epoch_num", "2550016", -1),
        metadata_of("eval_accuracy", "epoch_num", None, -1),
        metadata_of("eval_accuracy", "epoch_num", float("nan"), -1),
        metadata_of("eval_accuracy", "samples_count", 0, -1),
        setting("eval_accuracy", None, -1),
        setting("global_batch_size", "448"),
        setting("global_batch_size", 65536),
        metadata_of("run_stop", "status", "aborted"),
        appended("global_batch_size", 65_536),
        appended("run_stop", None, {"status": "aborted"}),
    ],
    ids=lambda change: change.__name__,
)
def test_logs_that_the_official_rcp_checker_fails_or_crashes_on_fail(tmp_path: Path, change: Mutation) -> None:
    logs = write_package(tmp_path, evaluations=16)
    for log in logs.iterdir():
        change_file(log, change)
    judged_convergence = convergence(tmp_path)
    try:
        passed, _, scaling = rcp_checker.check_directory(
            str(logs), "training", "5.0.0", verbose=False, bert_train_samples=False, rcp_pass="pruned_rcps"
        )
    except Exception:  # it may raise anything  # noqa: BLE001
        passed, scaling = False, 1.0
    assert judged_convergence.passed == passed
    if passed:
        assert judged_convergence.scaling == pytest.approx(scaling, rel=1e-9)


def test_a_bypass_leaves_convergence_to_the_review(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=TOO_FEW)
    (logs / "package_checker_params").write_text("rcp-bypass")
    assert breached_rules(tmp_path) == set()
    assert lacking_evidence(tmp_path) == {"convergence"}


def test_a_bypass_followed_by_a_line_end_is_ignored_as_by_the_official_checker(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=TOO_FEW)
    (logs / "package_checker_params").write_text("rcp-bypass\n")
    assert breached_rules(tmp_path) == {"convergence"}
