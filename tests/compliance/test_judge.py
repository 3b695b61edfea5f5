import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.log_spans import evaluation_s, startup_s
from bertbench.report.runs import olympic_mean, summarized, systems
from compliance.judge import find_logs, judge
from compliance.log import CannotJudge
from compliance.run import RunFacts


def line(key: str, value: Any = None, time_ms: int = 0, **metadata: Any) -> str:
    record = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**record, "metadata": {"file": "x.py", "lineno": 1, **metadata}})


def sound_log() -> list[str]:
    """An open run: 2 s to start, 10 s per block, 1 s per evaluation."""
    return [
        line("submission_benchmark", "bert"),
        line("submission_division", "open"),
        line("submission_platform", "toy"),
        line("cache_clear", True),
        line("seed", 7),
        line("global_batch_size", 16),
        line("init_start"),
        line("init_stop", time_ms=5_000),
        line("run_start", time_ms=10_000),
        line("block_start", time_ms=12_000, first_epoch_num=0, epoch_count=160),
        line("block_stop", time_ms=22_000, first_epoch_num=0),
        line("eval_start", time_ms=22_000, epoch_num=160),
        line("eval_accuracy", 0.3, 22_500, epoch_num=160),
        line("eval_stop", time_ms=23_000, epoch_num=160),
        line("block_start", time_ms=23_000, first_epoch_num=160, epoch_count=160),
        line("block_stop", time_ms=33_000, first_epoch_num=160),
        line("eval_start", time_ms=33_000, epoch_num=320),
        line("eval_accuracy", 0.72, 33_500, epoch_num=320),
        line("eval_stop", time_ms=34_000, epoch_num=320),
        line("train_samples", 320),
        line("eval_samples", 10_000),
        line("run_stop", time_ms=34_000, status="success"),
    ]


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_sound_log_passes_and_its_facts_are_read(tmp_path: Path) -> None:
    judgement = judge(write(tmp_path / "result_0.txt", sound_log()), "5.0.0")
    assert (judgement.verdict, judgement.findings) == ("pass", ())
    facts = judgement.facts
    assert facts is not None
    assert (facts.benchmark, facts.division, facts.status, facts.seed) == ("bert", "open", "success", 7)
    assert (facts.time_to_train_s, startup_s(facts), evaluation_s(facts)) == (24.0, 2.0, 2.0)
    assert (facts.samples, facts.best_accuracy) == (320, 0.72)
    assert facts.samples_per_s == pytest.approx(320 / 24)


@pytest.mark.parametrize("missing", ["run_stop", "eval_accuracy", "cache_clear", "train_samples", "init_stop"])
def test_a_log_without_a_required_key_fails(tmp_path: Path, missing: str) -> None:
    lines = [entry for entry in sound_log() if f'"key": "{missing}"' not in entry]
    judgement = judge(write(tmp_path / "result_0.txt", lines), "5.0.0")
    assert judgement.verdict == "fail"
    assert any(missing in finding.found or "init_stopped" in finding.found for finding in judgement.findings)


@pytest.mark.parametrize("division", ["../../evil", "free", 3, None])
def test_an_unknown_division_never_reaches_the_official_checker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, division: Any
) -> None:
    lines = [
        line("submission_division", division) if "submission_division" in entry else entry for entry in sound_log()
    ]
    monkeypatch.setattr("compliance.official._module", lambda: pytest.fail("it saw the log"))
    judgement = judge(write(tmp_path / "result_0.txt", lines), "5.0.0")
    assert (judgement.verdict, judgement.official.verdict) == ("fail", "error")
    assert {(finding.rule, finding.line) for finding in judgement.findings} == {("official", 2), ("division", 2)}


def test_a_log_that_breaks_the_official_checker_fails_and_spoils_no_other(tmp_path: Path) -> None:
    lines = [
        line("eval_accuracy", "high", epoch_num=1) if '"eval_accuracy"' in entry else entry for entry in sound_log()
    ]
    judgement = judge(write(tmp_path / "result_0.txt", lines), "5.0.0")
    assert (judgement.verdict, judgement.official.verdict) == ("fail", "error")
    assert judge(write(tmp_path / "result_1.txt", sound_log()), "5.0.0").verdict == "pass"


def test_logs_are_found_at_any_level_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("a/bert/result_10.txt", "a/bert/result_2.txt", "b/bert/result_0.txt", "b/notes.txt"):
        write(tmp_path / name, sound_log())
    found = [str(path.relative_to(tmp_path)) for path in find_logs(tmp_path)]
    assert found == ["a/bert/result_2.txt", "a/bert/result_10.txt", "b/bert/result_0.txt"]
    with pytest.raises(CannotJudge, match="found nothing there"):
        find_logs(tmp_path / "none")


def test_a_runs_folder_names_the_log_beside_it_but_a_folder_of_logs_its_own(tmp_path: Path) -> None:
    log = write(tmp_path / "bert" / "result_0.txt", sound_log())
    assert find_logs(tmp_path / "bert" / "result_0") == [log]  # as where only the log was copied
    (tmp_path / "bert" / "result_0").mkdir()
    assert find_logs(tmp_path / "bert" / "result_0") == [log]
    (tmp_path / "bert.txt").write_text("notes")
    assert find_logs(tmp_path / "bert") == [log]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"no mlperf here\n", "found text without"),
        (b"\xff\xfe\x00", "found UTF-16"),
        (b"", "found an empty file"),
    ],
)
def test_what_is_no_log_cannot_be_judged(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "result_0.txt").write_bytes(content)
    judgement = judge(tmp_path / "result_0.txt", "5.0.0")
    assert judgement.verdict == "cannot-judge"
    assert expected in judgement.findings[0].found


def test_oddities_of_real_logs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_bytes("\r\n".join(f"12: {entry}" for entry in sound_log()).encode())
    assert judge(path, "5.0.0").verdict == "pass"


@pytest.mark.parametrize(("what", "code"), [("sound", 0), ("broken", 1), ("missing", 2)])
def test_the_exit_code_is_the_worst_verdict(tmp_path: Path, what: str, code: int) -> None:
    write(tmp_path / "sound" / "result_0.txt", sound_log())
    write(tmp_path / "broken" / "result_0.txt", sound_log()[:-1])
    command = [sys.executable, "-m", "compliance", "--json", str(tmp_path / "sound"), str(tmp_path / what)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    first, second = json.loads(done.stdout)
    assert first["verdict"] == "pass"
    assert first["official"] == {"ruleset": "5.0.0", "verdict": "pass"}
    assert second["verdict"] == {0: "pass", 1: "fail", 2: "cannot-judge"}[code]
    assert {"path", "division", "time_to_train_s", "best_accuracy", "findings"} <= set(second)


def test_the_mean_drops_the_fastest_and_the_slowest() -> None:
    assert olympic_mean([1.0, 100.0, 4.0, 6.0]) == 5.0
    assert olympic_mean([2.0, 4.0]) == 3.0


def test_the_report_says_where_the_time_went(tmp_path: Path) -> None:
    write(tmp_path / "result_0.txt", sound_log())
    write(tmp_path / "result_1.txt", [entry.replace("success", "aborted") for entry in sound_log()])
    (system,) = map(summarized, systems([tmp_path]))
    assert (system["system"], system["reached"], system["mean_time_to_train_s"]) == ("toy", 1, 24.0)
    row = system["runs"][0]
    assert (row["startup_s"], row["steps_s"], row["evaluation_s"]) == (2.0, 20.0, 2.0)


def test_facts_of_an_empty_run_are_unknown() -> None:
    facts = RunFacts([])
    assert facts.time_to_train_s is facts.best_accuracy is facts.samples is facts.samples_per_s is None


def test_the_judge_needs_neither_torch_nor_bertbench() -> None:
    modules = "sys, compliance.__main__, compliance.package"
    code = f"import {modules}; print({{'torch', 'bertbench'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
