import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance import judge_package, package_text
from compliance.__main__ import main
from compliance.package.package import PackageJudgement
from tests.compliance.packages import evaluated_after, line, run_log, write_package
from tests.conftest import Captured
from tests.damage import instead, linked


def judged(root: Path) -> PackageJudgement:
    return judge_package(root, "5.0.0")


def errors(root: Path) -> set[str]:
    return {breach.rule.id for breach in judged(root).all_breaches()}


def missing(root: Path) -> set[str]:
    """What the rules ask for and the package doesn't give; with --strict it fails the package."""
    judgement = judged(root)
    of_results = [unchecked for result in judgement.results for unchecked in result.not_applied]
    return {unchecked.rule for unchecked in [*judgement.not_applied, *of_results] if unchecked.asked}


def official_package_checker(root: Path, scratch: Path, *options: str) -> tuple[bool, float | None]:
    """The official verdict on a copy, and the scaling that it wrote: the tool writes into what it judges."""
    copy = scratch / "copy"
    shutil.copytree(root, copy)
    command = [sys.executable, "-m", "mlperf_logging.package_checker", str(copy), "training", "5.0.0", *options]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True)
    scaling = next(copy.rglob("scaling.json"), None)
    return "FOUND NO ERRORS, SUCCESS" in done.stderr, scaling and json.loads(scaling.read_text())["scaling_factor"]


def contents(root: Path) -> dict[str, Any]:
    return {str(path.relative_to(root)): path.is_file() and path.read_bytes() for path in root.rglob("*")}


@pytest.mark.parametrize("division", ["closed", "open"])
def test_a_sound_package_passes_without_a_word_and_is_left_as_it_was(tmp_path: Path, division: str) -> None:
    write_package(tmp_path, division)
    before = contents(tmp_path)
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.all_breaches(), judgement.questions) == ("pass", [], ())
    assert contents(tmp_path) == before
    (result,) = judgement.results
    assert result.time_to_train_s == 104.5  # of 100 ... 109, without 100 and 109
    assert (result.division, len(result.logs)) == (division, 10)


# at batch size 448 the reference needs 2,414,421 samples, and 2,274,732 are believed (RCP, rulesets 2.1 to 5.0):
# 15 and 16 evaluations are 2,250,304 and 2,400,384 samples
@pytest.mark.parametrize("evaluations", [15, 16])
def test_convergence_is_judged_and_scaled_as_the_official_package_checker_does(
    tmp_path: Path, evaluations: int
) -> None:
    write_package(tmp_path / "org", evaluations=evaluations)
    judgement = judged(tmp_path / "org")
    passed, scaling = official_package_checker(tmp_path / "org", tmp_path)
    assert (judgement.verdict == "pass") == passed == (evaluations > 15)
    convergence = judgement.results[0].convergence
    assert convergence is not None
    assert convergence.scaling == pytest.approx(scaling or 1.0, rel=1e-9)
    assert (convergence.scaling > 1) == (evaluations == 16)
    assert f"{evaluated_after(evaluations):,}" in package_text(judgement)


@pytest.mark.parametrize("value", [{"NCCL": "2.12"}, ["CUDA 12", "cuDNN"], None, 3])
def test_a_published_description_holds_objects_and_lists(tmp_path: Path, value: Any) -> None:
    write_package(tmp_path)
    rewrite(tmp_path / SYSTEM, '"other_software_stack": ""', f'"other_software_stack": {json.dumps(value)}')
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.all_breaches(), judgement.questions) == ("pass", [], ())
    assert judgement.results[0].convergence is not None


@pytest.mark.parametrize("field", ['"division"', '"status"', '"cooling"'])
def test_an_odd_field_of_the_description_switches_no_check_off(tmp_path: Path, field: str) -> None:
    logs = write_package(tmp_path, evaluations=14)  # fewer samples than the reference believes
    content = json.loads((tmp_path / SYSTEM).read_text()) | {json.loads(field): ["?"]}
    (tmp_path / SYSTEM).write_text(json.dumps(content))
    rewrite(logs / "result_3.txt", '"seed", "value": 4', '"seed", "value": 8')
    assert {"convergence", "seed"} <= errors(tmp_path)
    (tmp_path / SYSTEM).write_text("{")
    assert {"convergence", "seed", "system-description"} <= errors(tmp_path)


@pytest.mark.parametrize("status", ["Available on premise", "available on-premise", "available", "preview"])
def test_a_status_may_be_spelled_otherwise(tmp_path: Path, status: str) -> None:
    write_package(tmp_path)
    rewrite(tmp_path / SYSTEM, "Available on-premise", status)
    assert judge_package(tmp_path, "3.1.0").questions == ()


@pytest.mark.parametrize("name", ["SUBMISSION_ORG_PLACEHOLDER", "Org", "big-org"])
def test_a_submitter_may_be_spelled_otherwise(tmp_path: Path, name: str) -> None:
    for log in write_package(tmp_path).iterdir():
        rewrite(log, '"submission_org", "value": "org"', f'"submission_org", "value": "{name}"')
    assert judged(tmp_path).questions == ()


def test_a_note_and_an_unreadable_log_do_not_switch_the_convergence_check_off(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=14)
    for log in logs.iterdir():  # the official tool takes any line that mentions the key
        lines = log.read_text().splitlines()
        note = line("note", "not an eval_accuracy", 99_000, epoch_num=2_600_000)
        log.write_text("\n".join([*lines[:-1], note, lines[-1]]) + "\n")
    assert "convergence" in errors(tmp_path)
    (logs / "result_3.txt").write_bytes(b"\x1f\x8b")
    assert "convergence" in errors(tmp_path)


def test_a_long_value_does_not_hang_the_convergence_check(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    (logs / "result_3.txt").write_text(
        line("note", ":::MLLOG" + "x" * 700_000) + "\n" + (logs / "result_3.txt").read_text()
    )
    began = time.process_time()
    convergence = judged(tmp_path).results[0].convergence
    assert convergence is not None
    assert time.process_time() - began < 20  # the official tool alone takes minutes


@pytest.mark.parametrize(
    ("eighth", "fourth", "equal"),
    [
        ("8.0", '"8"', True), ("8", '" 8"', True), ("8", "8.0", True), ("8", '"\\u0668"', True), ("8", "8", True),
        ("8", "9", False),
    ],
)  # fmt: skip
def test_two_runs_log_no_seed_on_the_same_line_of_a_source_file(
    tmp_path: Path, eighth: str, fourth: str, equal: bool
) -> None:
    logs = write_package(tmp_path)
    rewrite(logs / "result_8.txt", '"seed", "value": 9', '"seed", "value": 99')
    rewrite(logs / "result_7.txt", '"seed", "value": 8', f'"seed", "value": {eighth}')
    rewrite(logs / "result_3.txt", '"seed", "value": 4', f'"seed", "value": {fourth}')
    assert ("seed" in errors(tmp_path)) == equal
    rewrite(logs / "result_3.txt", f'"seed", "value": {fourth}, "metadata": {{"file": "x.py"', '"seed", "value": 8, '
            '"metadata": {"file": "y.py"')  # fmt: skip
    assert errors(tmp_path) == set()


@pytest.mark.parametrize("value", ["null", '"eight"', '"0x8"', "[8]"])
def test_a_seed_is_an_integer_by_int(tmp_path: Path, value: str) -> None:
    logs = write_package(tmp_path)
    rewrite(logs / "result_7.txt", '"seed", "value": 8', f'"seed", "value": {value}')
    assert "seed" in errors(tmp_path)


@pytest.mark.parametrize("place", ["file", "lineno"])
def test_a_seed_has_its_source_file_and_line_as_the_official_seed_checker_asks(tmp_path: Path, place: str) -> None:
    logs = write_package(tmp_path / "org")
    old = '"metadata": {"file": "x.py", "lineno": 1}'
    rewrite(logs / "result_7.txt", f'"seed", "value": 8, {old}', f'"seed", "value": 8, {old.replace(place, "at")}')
    passed, _ = official_package_checker(tmp_path / "org", tmp_path)
    assert (passed, errors(tmp_path / "org")) == (False, {"seed"})


def test_logs_that_count_epochs_fail_as_they_do_by_the_official_package_checker(tmp_path: Path) -> None:
    for log in write_package(tmp_path, evaluations=16).iterdir():
        without = re.sub(r'.*"train_samples".*\n', "", log.read_text())
        log.write_text(re.sub(r'"epoch_num": \d+', '"epoch_num": 3', without))
    (breach,) = (breach for breach in judged(tmp_path).all_breaches() if breach.rule.id == "convergence")
    assert "epoch_num counts no samples" in breach.found


@pytest.mark.parametrize(("evaluations", "ruleset"), [(16, "5.0.0"), (14, "5.0.0"), (16, "1.1.0")])
def test_logs_that_count_epochs_give_their_samples_to_converge_as_train_samples_from_2_0_on(
    tmp_path: Path, evaluations: int, ruleset: str
) -> None:
    for log in write_package(tmp_path / "org", evaluations=evaluations).iterdir():
        counted = re.sub(
            r'"epoch_num": (\d+)', lambda found: f'"epoch_num": {int(found[1]) / 156_725_653:.4f}', log.read_text()
        )
        log.write_text(counted)
    found = {breach.rule.id for breach in judge_package(tmp_path / "org", ruleset).all_breaches()}
    assert ("convergence" in found) == (evaluations == 14 or ruleset == "1.1.0")
    if ruleset == "5.0.0":
        passed, _ = official_package_checker(tmp_path / "org", tmp_path, "--rcp-bert-train-samples")
        assert passed == ("convergence" not in found)


def test_one_log_without_train_samples_leaves_all_to_epoch_num_as_the_official_option_would(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    rewrite(logs / "result_2.txt", '"key": "train_samples"', '"key": "samples_of_training"')
    log = logs / "result_7.txt"
    log.write_text(re.sub(r'"epoch_num": \d+', '"epoch_num": 3', log.read_text()))
    rewrite(log, '"train_samples", "value": ', '"train_samples", "value": 1')
    judgement = judged(tmp_path)
    assert judgement.results[0].convergence is not None
    assert judgement.results[0].convergence.passed  # 3 is the fastest, which is dropped
    rewrite(logs / "result_2.txt", '"samples_of_training"', '"train_samples"')
    rewrite(logs / "result_2.txt", '"train_samples", "value": 2', '"train_samples", "value": ')
    assert "convergence" not in errors(tmp_path)


def test_a_failed_run_that_cannot_be_read_fails_the_package_as_the_official_seed_checker_does(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    with (logs / "result_4.txt").open("a") as log:
        log.write(":::MLLOG {\n")
    assert errors(tmp_path) == {"seed"}


def test_one_failed_run_is_dropped_as_the_slowest(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    (logs / "result_4.txt").write_text(run_log(seconds=1, seed=5, status="aborted"))
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.results[0].failed_run) == ("pass", "result_4.txt")
    # 101, 102, 103, 105 ... 109: without the fastest (100) and the failed one
    assert judgement.results[0].time_to_train_s == 105.125
    (logs / "result_7.txt").write_text(run_log(seconds=98, seed=8, status="aborted"))
    assert "failed-runs" in errors(tmp_path)


def test_a_run_that_was_made_to_look_inside_is_not_even_a_failed_one(tmp_path: Path) -> None:
    logs = write_package(tmp_path)
    (logs / "result_4.txt").write_text(
        line("not_a_result", "smoke") + "\n" + run_log(seconds=99, seed=5, status="aborted")
    )
    assert errors(tmp_path) == {"not-a-result"}


def rewrite(path: Path, old: str, new: str, most: int = -1) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, most))


def edited(old: str, new: str) -> Callable[[Path], None]:
    return lambda path: rewrite(path, old, new)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate((50 << 20) + 1)


LOG, SCALING = "results/toy/bert/result_3.txt", "results/toy/bert/scaling.json"
SOURCES = "benchmarks/bert/implementations/toy"
SYSTEM = "systems/toy.json"


@pytest.mark.parametrize(
    ("rule", "where", "break_it"),
    [
        ("runs", LOG, lambda path: [log.unlink() for log in path.parent.iterdir()]),
        ("runs", LOG, lambda path: shutil.copy(path, path.with_name("result_10.txt"))),
        ("seed", LOG, edited('"seed", "value": 4', '"seed", "value": 8')),
        ("seed", LOG, edited('"key": "seed"', '"key": "sead"')),
        ("convergence", LOG, edited('"value": 448', '"value": 512')),
        ("belongs", LOG, edited('"value": "closed"', '"value": "open"')),
        ("belongs", LOG, edited('"value": "bert"', '"value": "dlrm_dcnv2"')),
        ("system-description", SYSTEM, Path.unlink),
        ("system-description", SYSTEM, edited('"cooling"', '"coolin"')),
        ("system-description", SYSTEM, edited("Available on-premise", "bought")),
        ("system-description", SYSTEM, edited('"8"', "8")),
        ("system-description", SYSTEM, lambda path: path.write_text("[" * 100_000)),
        ("system-division", SYSTEM, edited('"closed"', '"closet"')),
        ("system-fields", SYSTEM, edited('"division": "closed"', '"division": "open", "division": "closed"')),
        ("system-description", SYSTEM, edited('"cooling": "', '"deep": ' + "[" * 900 + "]" * 900 + ', "cooling": "')),
        ("system-description", SYSTEM, instead(os.mkfifo)),
        ("system-description", SYSTEM, linked("/dev/zero")),
        ("runs", LOG, instead(Path.mkdir)),
        ("runs", LOG, instead(os.mkfifo)),
        ("seed", LOG, linked("result_0.txt")),
        ("scaling", SCALING, os.mkfifo),
        ("same-system", LOG, edited('"value": "toy"', '"value": "another"')),
        ("same-system", LOG, edited('"value": "org"', '"value": "another"')),
        ("layout", "benchmarks", shutil.rmtree),
        ("sources", SOURCES, lambda path: [file.unlink() for file in path.iterdir()]),
        ("file-name", "benchmarks/a b.py", Path.touch),
        ("file-name", "benchmarks/.hidden", Path.mkdir),
        ("file-size", "benchmarks/weights.bin", large),
        ("broken-link", "benchmarks/data", linked("nowhere")),
    ],
)
def test_a_broken_package_fails_by_its_rule(
    tmp_path: Path, rule: str, where: str, break_it: Callable[[Path], object]
) -> None:
    write_package(tmp_path, evaluations=2)
    break_it(tmp_path / where)
    assert rule in errors(tmp_path)


@pytest.mark.parametrize(
    ("rule", "where", "break_it"),
    [
        ("system-description", SYSTEM, edited('"8"', '"eight"')),
        ("implementation", f"{SOURCES}/setup.sh", Path.unlink),
        ("implementation", f"{SOURCES}/toy_main.json", Path.unlink),
    ],
)
def test_missing_evidence_fails_a_package_with_strict(
    tmp_path: Path, rule: str, where: str, break_it: Callable[[Path], object]
) -> None:
    write_package(tmp_path, "open", evaluations=2)
    break_it(tmp_path / where)
    judgement = judged(tmp_path)
    assert (judgement.verdict, judgement.all_breaches(), judgement.questions) == ("pass", [], ())
    assert main(["package", str(tmp_path), "--strict"]) == 1
    assert missing(tmp_path) == {rule}


@pytest.mark.parametrize(
    ("rule", "where", "break_it"),
    [
        ("runs", "results/toy/bert/notes.md", Path.touch),
        ("layout", SYSTEM, lambda path: shutil.copy(path, path.with_name("spare.json"))),
        ("layout", "results/toy/resnet", Path.mkdir),
        ("layout", "results/again", linked("toy")),
        ("broken-link", "benchmarks/passwd", linked("/etc/passwd")),
        ("scaling", SCALING, lambda path: path.write_text('{"scaling_factor": 1.25}')),
    ],
)
def test_what_no_rule_asks_for_is_noted_and_fails_nothing(
    tmp_path: Path, rule: str, where: str, break_it: Callable[[Path], object]
) -> None:
    write_package(tmp_path, "open", evaluations=2)
    break_it(tmp_path / where)
    if where == "results/again":
        shutil.copy(tmp_path / SYSTEM, tmp_path / "systems" / "again.json")
        for name in ("again_main.json", "README.md"):
            (tmp_path / SOURCES / name).touch()
    judgement = judge_package(tmp_path, "5.0.0", strict=True)
    assert (judgement.verdict, judgement.all_breaches(), missing(tmp_path)) == ("pass", [], set())
    assert rule in {unchecked.rule for unchecked in judgement.all_not_applied()}


def test_a_name_that_the_official_repository_checker_takes_is_no_breach(tmp_path: Path) -> None:
    write_package(tmp_path, "open", evaluations=2)
    (tmp_path / "benchmarks" / "a\tb.py").touch()
    assert errors(tmp_path) == set()
    (tmp_path / "benchmarks" / "a b.py").touch()
    assert errors(tmp_path) == {"file-name"}
    before = judge_package(tmp_path, "1.1.0")  # the official checker of names begins with 2.0.0
    assert "file-name" not in {breach.rule.id for breach in before.all_breaches()}
    assert "file-name" in {unchecked.rule for unchecked in before.not_applied}


def test_a_division_may_have_a_capital_as_in_the_submission_rules(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=14)  # fewer samples than the reference believes
    rewrite(tmp_path / SYSTEM, '"closed"', '"Closed"')
    assert errors(tmp_path) == {"convergence"}
    rewrite(logs / "result_3.txt", '"value": "closed"', '"value": "open"')
    assert "belongs" in errors(tmp_path)


def test_a_package_of_another_benchmark_cannot_be_judged(tmp_path: Path, capsys: Captured) -> None:
    write_package(tmp_path, "open", evaluations=2).rename(tmp_path / "results" / "toy" / "resnet")
    assert main(["package", str(tmp_path)]) == 2
    assert "found no results/<system>/bert/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "break_it", "figures"),
    [
        (SYSTEM, edited('"org"', '"other"'), ["systems/toy.json: submission_org 'org', described as 'other'"]),
        (SYSTEM, edited("Available on-premise", "Available cloud"),
         ["systems/toy.json: submission_status 'onprem', described as 'Available cloud'"]),
        (LOG, edited('"value": 6700', '"value": 7100'),
         ["opt_learning_rate_training_steps [7100], elsewhere [6700]"]),
    ],
)  # fmt: skip
def test_a_contradiction_is_a_question_that_fails_nothing(
    tmp_path: Path, where: str, break_it: Callable[[Path], object], figures: list[str]
) -> None:
    write_package(tmp_path, "open", evaluations=2)
    break_it(tmp_path / where)
    assert main(["package", str(tmp_path), "--strict"]) == 0
    judgement = judged(tmp_path)
    logs = [question for result in judgement.results for log in result.logs for question in log.questions]
    assert [question.figure for question in [*judgement.questions, *logs]] == figures


def test_one_log_gives_a_seed_once_on_a_line_as_the_official_seed_checker_asks(tmp_path: Path) -> None:
    log = write_package(tmp_path / "org") / "result_7.txt"
    (seed,) = [one for one in log.read_text().splitlines(True) if '"seed"' in one]
    rewrite(log, seed, seed * 2)
    passed, _ = official_package_checker(tmp_path / "org", tmp_path)
    assert (passed, errors(tmp_path / "org")) == (False, {"seed"})
    rewrite(log, seed * 2, seed + seed.replace("x.py", "y.py"))
    assert errors(tmp_path / "org") == set()


@pytest.mark.parametrize("content", ["{}", "1.0", "[", '{"scaling_factor": "1.0"}', '{"scaling_factor": NaN}', "null"])
def test_a_scaling_that_the_official_summary_can_not_read_is_an_error(tmp_path: Path, content: str) -> None:
    logs = write_package(tmp_path, "open", evaluations=2)
    (logs / "scaling.json").write_text('{"scaling_factor": 1.0}')
    assert errors(tmp_path) == set()
    for encoding in ("utf-8", "utf-16", "utf-8-sig"):
        (logs / "scaling.json").write_text(content if encoding == "utf-8" else '{"scaling_factor": 1.0}', encoding)
        assert errors(tmp_path) == {"scaling"}


def test_a_submitter_may_ask_the_official_checker_for_leniency(tmp_path: Path) -> None:
    logs = write_package(tmp_path, evaluations=14)
    assert "convergence" in errors(tmp_path)
    rewrite(logs / "result_3.txt", '"key": "seed"', '"key": "sead"')
    (logs / "package_checker_params").write_text("rcp-bypass")
    assert "convergence" in missing(tmp_path)
    assert "seed" in errors(tmp_path)
    (logs / "package_checker_params").write_text("rcp-bypass\nseed-checker-bypass")
    assert "seed" in missing(tmp_path)
    rewrite(logs / "result_5.txt", '"seed", "value": 6', '"seed", "value": 8')  # no bypass for one seed in two runs
    assert "seed" in errors(tmp_path)
    older = judge_package(tmp_path, "4.0.0")  # whose text forbids no equal seeds
    assert "seed" not in {breach.rule.id for breach in older.all_breaches()}
    assert any("result_7.txt logs seed 8" in unchecked.reason for unchecked in older.results[0].not_applied)
    (logs / "package_checker_params").write_text("rcp-bypass\n")  # the official tool compares lines with their ends
    assert "convergence" in errors(tmp_path)


def test_the_command_prints_json_and_exits_with_the_verdict(tmp_path: Path, capsys: Captured) -> None:
    write_package(tmp_path, "open", evaluations=2)
    for verdict, code in (("pass", 0), ("fail", 1)):
        assert main(["package", str(tmp_path), "--json"]) == code
        printed = json.loads(capsys.readouterr().out)
        assert (printed["verdict"], len(printed["results"][0]["logs"])) == (verdict, 10)
        (tmp_path / SYSTEM).write_text("{}")
    fields = {"rule", "line", "found", "expected", "document", "section", "rounds", "remedy"}
    assert set(printed["findings"][0]) == fields
    shutil.rmtree(tmp_path / "results")
    assert main(["package", str(tmp_path), "--json"]) == 2
    printed = capsys.readouterr()
    assert (json.loads(printed.out)["verdict"], "found no results/" in printed.err) == ("cannot-judge", True)
