"""A whole package: its files, its system descriptions, its runs together, and what the command prints."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance import judge_package
from compliance.__main__ import main
from tests.compliance.mutations import change_file, setting
from tests.compliance.packages import (
    LOG,
    LOGS,
    SCALING,
    SOURCES,
    SYSTEM,
    breached_rules,
    edited,
    judged,
    lacking_evidence,
    mutated,
    rewrite,
    run_log,
    write_package,
)
from tests.conftest import Captured
from tests.damage import instead, linked

Change = Callable[[Path], object]


@pytest.mark.parametrize("division", ["closed", "open"])
def test_a_sound_package_passes_without_a_finding_or_a_question(tmp_path: Path, division: str) -> None:
    write_package(tmp_path, division)
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.all_breaches(), judgement.questions) == ("pass", [], ())
    (result,) = judgement.results
    assert (result.division, len(result.logs)) == (division, 10)


def test_the_time_to_train_leaves_out_the_fastest_and_the_slowest_run(tmp_path: Path) -> None:
    write_package(tmp_path, "open", evaluations=2)
    (result,) = judged(tmp_path).results
    assert result.time_to_train_s == 104.5  # of 100 ... 109, without 100 and 109


def test_judging_does_not_change_a_package(tmp_path: Path) -> None:
    write_package(tmp_path)
    before = contents(tmp_path)
    judged(tmp_path)
    assert contents(tmp_path) == before


def contents(root: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.parametrize("value", [{"NCCL": "2.12"}, None])
def test_a_description_may_contain_objects_and_lists_as_published_ones_do(tmp_path: Path, value: Any) -> None:
    write_package(tmp_path)
    rewrite(tmp_path / SYSTEM, '"other_software_stack": ""', f'"other_software_stack": {json.dumps(value)}')
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.all_breaches(), judgement.questions) == ("pass", [], ())


@pytest.mark.parametrize("status", ["Available on premise", "available", "preview"])
def test_a_status_may_be_spelled_differently(tmp_path: Path, status: str) -> None:
    write_package(tmp_path)
    rewrite(tmp_path / SYSTEM, "Available on-premise", status)
    assert judge_package(tmp_path, "3.1.0").questions == ()


@pytest.mark.parametrize("name", ["SUBMISSION_ORG_PLACEHOLDER", "Org"])
def test_a_submitter_may_be_spelled_differently(tmp_path: Path, name: str) -> None:
    for log in write_package(tmp_path).iterdir():
        change_file(log, setting("submission_org", name))
    assert judged(tmp_path).questions == ()


def test_one_failed_run_is_dropped_as_the_slowest(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    (logs / "result_4.txt").write_text(run_log(seconds=1, seed=5, status="aborted"))
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.results[0].failed_run) == ("pass", "result_4.txt")
    # 101, 102, 103, 105 ... 109: without the fastest (100) and the failed one
    assert judgement.results[0].time_to_train_s == 105.125


def test_two_failed_runs_fail_the_package(tmp_path: Path) -> None:
    logs = write_package(tmp_path, "open", evaluations=2)
    for number in (4, 7):
        log = run_log("open", evaluations=2, seconds=98, seed=number + 1, status="aborted")
        (logs / f"result_{number}.txt").write_text(log)
    assert breached_rules(tmp_path) == {"failed-runs"}


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate((50 << 20) + 1)


def without_files(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def without_logs(log: Path) -> None:
    without_files(log.parent)


@pytest.mark.parametrize(
    ("rule", "where", "break_it"),
    [
        ("runs", LOG, without_logs),
        ("runs", LOG, instead(os.mkfifo)),
        ("seed", LOG, linked("result_0.txt")),
        ("convergence", LOG, mutated(setting("global_batch_size", 512))),
        ("belongs", LOG, mutated(setting("submission_benchmark", "dlrm_dcnv2"))),
        ("same-system", LOG, mutated(setting("submission_platform", "another"))),
        ("same-system", LOG, mutated(setting("submission_org", "another"))),
        ("scaling", SCALING, os.mkfifo),
        ("system-description", SYSTEM, Path.unlink),
        ("system-description", SYSTEM, edited('"cooling"', '"coolin"')),
        ("system-description", SYSTEM, edited("Available on-premise", "bought")),
        ("system-description", SYSTEM, lambda path: path.write_text("[" * 100_000)),
        ("system-description", SYSTEM, linked("/dev/zero")),
        ("system-division", SYSTEM, edited('"closed"', '"closet"')),
        ("system-fields", SYSTEM, edited('"division": "closed"', '"division": "open", "division": "closed"')),
        ("layout", "benchmarks", shutil.rmtree),
        ("sources", SOURCES, without_files),
        ("file-name", "benchmarks/a b.py", Path.touch),
        ("file-name", "benchmarks/.hidden", Path.mkdir),
        ("file-size", "benchmarks/weights.bin", large),
        ("broken-link", "benchmarks/data", linked("nowhere")),
    ],
)
def test_a_broken_package_fails_by_its_rule(tmp_path: Path, rule: str, where: str, break_it: Change) -> None:
    write_package(tmp_path, evaluations=2)
    break_it(tmp_path / where)
    assert rule in breached_rules(tmp_path)


def test_logs_of_another_division_than_the_descriptions_fail_whatever_its_case(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    rewrite(tmp_path / SYSTEM, '"closed"', '"Closed"')
    assert breached_rules(tmp_path) == set()
    change_file(logs / "result_3.txt", setting("submission_division", "open"))
    assert breached_rules(tmp_path) == {"belongs"}


@pytest.mark.parametrize(
    ("rule", "where", "break_it"),
    [
        ("system-description", SYSTEM, edited('"8"', '"eight"')),
        ("implementation", f"{SOURCES}/setup.sh", Path.unlink),
        ("implementation", f"{SOURCES}/toy_main.json", Path.unlink),
    ],
)
def test_missing_evidence_fails_a_package_only_with_strict(
    tmp_path: Path, rule: str, where: str, break_it: Change
) -> None:
    write_package(tmp_path, "open", evaluations=2)
    break_it(tmp_path / where)
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.all_breaches(), judgement.questions) == ("pass", [], ())
    assert judge_package(tmp_path, "5.0.0", strict=True).verdict == "fail"
    assert lacking_evidence(tmp_path) == {rule}


def links_to_a_system(path: Path) -> None:
    """Link the runs of the first system to a second one, and add everything else that a system needs."""
    path.symlink_to("toy")
    root = path.parents[1]
    shutil.copy(root / SYSTEM, root / "systems" / "again.json")
    (root / SOURCES / "again_main.json").touch()


def a_description_without_results(path: Path) -> None:
    shutil.copy(path, path.with_name("spare.json"))


@pytest.mark.parametrize(
    ("rule", "where", "change"),
    [
        ("runs", f"{LOGS}/notes.md", Path.touch),
        ("layout", SYSTEM, a_description_without_results),
        ("layout", "results/toy/resnet", Path.mkdir),
        ("layout", "results/again", links_to_a_system),
        ("broken-link", "benchmarks/passwd", linked("/etc/passwd")),
    ],
)
def test_oddities_that_no_rule_forbids_are_noted_and_fail_nothing(
    tmp_path: Path, rule: str, where: str, change: Change
) -> None:
    write_package(tmp_path, "open", evaluations=2)
    change(tmp_path / where)
    judgement = judge_package(tmp_path, "5.0.0", strict=True)
    assert (judgement.verdict, judgement.all_breaches(), lacking_evidence(tmp_path)) == ("pass", [], set())
    assert rule in {unchecked.rule for unchecked in judgement.all_not_applied()}


def test_names_are_judged_from_2_0_on_as_by_the_official_checker(tmp_path: Path) -> None:
    write_package(tmp_path, "open", evaluations=2)
    (tmp_path / "benchmarks" / "a b.py").touch()
    before = judge_package(tmp_path, "1.1.0")
    assert "file-name" not in {breach.rule.id for breach in before.all_breaches()}
    assert "file-name" in {unchecked.rule for unchecked in before.not_applied}


@pytest.mark.parametrize(
    ("where", "change", "named"),
    [
        (SYSTEM, edited('"org"', '"other"'), "submission_org"),
        (SYSTEM, edited("Available on-premise", "Available cloud"), "submission_status"),
        (LOG, mutated(setting("opt_learning_rate_training_steps", 7100)), "opt_learning_rate_training_steps"),
    ],
)
def test_a_contradiction_raises_a_question_and_fails_nothing(
    tmp_path: Path, where: str, change: Change, named: str
) -> None:
    write_package(tmp_path, "open", evaluations=2)
    change(tmp_path / where)
    judgement = judge_package(tmp_path, "5.0.0", strict=True)
    of_logs = [question for result in judgement.results for log in result.logs for question in log.questions]
    assert [named in question.figure for question in [*judgement.questions, *of_logs]] == [True]
    assert judgement.verdict == "pass"


@pytest.mark.parametrize(
    "content",
    [
        "{}", "[", '{"scaling_factor": NaN}', '{"scaling_factor": 1.25}',
        '{"scaling_factor": 0.5, "scaling_factor": 1.0}',
    ],
)  # fmt: skip
def test_a_scaling_that_the_official_rcp_checker_does_not_give_is_an_error(tmp_path: Path, content: str) -> None:
    assert rules_for_scaling(tmp_path, content.encode()) == {"scaling"}


@pytest.mark.parametrize(("factor", "rules"), [(2_414_421 / 2_400_384, set()), (1.0, {"scaling"})])
def test_the_scaling_of_a_result_that_converges_sooner_is_the_official_rcp_checker_s(
    tmp_path: Path, factor: float, rules: set[str]
) -> None:
    write_package(tmp_path, evaluations=16)
    (tmp_path / SCALING).write_text(json.dumps({"scaling_factor": factor}))
    assert breached_rules(tmp_path) == rules


def rules_for_scaling(root: Path, content: bytes) -> set[str]:
    write_package(root, "open", evaluations=2)
    (root / SCALING).write_bytes(content)
    return breached_rules(root)


def test_the_command_prints_the_judgement_as_json(tmp_path: Path, capsys: Captured) -> None:
    write_package(tmp_path, "open", evaluations=2)
    (tmp_path / SYSTEM).write_text("{}")
    assert main(["package", str(tmp_path), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], len(printed["results"][0]["logs"])) == ("fail", 10)
    fields = {"rule", "line", "found", "expected", "document", "section", "rounds", "remedy"}
    assert set(printed["findings"][0]) == fields


def test_json_is_printed_for_a_package_that_cannot_be_judged_too(tmp_path: Path, capsys: Captured) -> None:
    assert main(["package", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["verdict"] == "cannot-judge"
