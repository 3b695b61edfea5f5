"""Untrusted paths and logs: the judge doesn't hang, doesn't crash, runs no code, and uses bounded memory."""

import io
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from compliance import judge_log
from compliance.__main__ import main
from compliance.read.log import Log
from compliance.read.record import as_json
from tests.compliance.fuzz import mutated_log
from tests.compliance.logs import RULESETS, at, closed, compliance, demo, judged, text, write
from tests.compliance.mutations import setting
from tests.conftest import Captured


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        _socket,
        lambda _: Path("/dev/zero"),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("nowhere"),
        lambda _: Path("a\0b"),
        lambda path: path.parent,
    ],
    ids=["FIFO", "socket", "device", "link loop", "broken link", "NUL in a name", "empty folder"],
)
def test_a_path_that_is_not_a_file_cannot_be_judged(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "log.txt"
    assert judge_log(make(path) or path, "5.0.0").verdict == "cannot-judge"


def test_a_log_of_more_than_10_000_keys_cannot_be_judged(tmp_path: Path) -> None:
    records = closed()
    flood = [{**records[0], "key": f"key {number}"} for number in range(10_001)]
    judgement = judged(tmp_path, [*flood, *records])
    assert judgement.verdict == "cannot-judge"


def test_a_folder_with_specials_and_loops_is_judged_to_its_end(tmp_path: Path) -> None:
    write(tmp_path / "a" / "result_0.txt", closed())
    os.mkfifo(tmp_path / "a" / "result_1.txt")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "result_2.txt").symlink_to("result_2.txt")
    done = compliance("--json", str(tmp_path))
    assert done.returncode == 2
    assert [(Path(one["path"]).name, one["verdict"]) for one in json.loads(done.stdout)] == [
        ("result_2.txt", "cannot-judge"),
        ("result_0.txt", "pass"),
        ("result_1.txt", "cannot-judge"),
    ]


def test_a_log_comes_from_standard_input() -> None:
    done = compliance("--json", "-", stdin=text(closed()).encode())
    (log,) = json.loads(done.stdout)
    assert (done.returncode, log["path"], log["verdict"], log["findings"]) == (0, "-", "pass", [])
    assert compliance("-", stdin=b"\x1f\x8b\x08").returncode == 2


@pytest.mark.parametrize(
    ("key", "keys_before"),
    [("submission_division", 0), ("submission_benchmark", 9_000)],  # it keeps a bounded number of keys, and checks all
)
def test_a_value_of_a_log_never_becomes_a_path_of_a_rule_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, keys_before: int
) -> None:
    """The log names a rule file outside the package, which the official checker would run."""
    ran = tmp_path / "ran"
    rules = f"- BEGIN:\n    CODE: \"open({str(ran)!r}, 'w')\"\n"
    for name in ("evil_common.yaml", "closed_evil.yaml"):
        write(tmp_path / "x" / name, rules)
    records = closed()
    up = "../" * 30 + str(tmp_path / "x")[1:]
    records[at(records, key)]["value"] = f"{up}/evil" if key == "submission_division" else f"x/../{up}/closed_evil"
    opened: list[str] = []

    def noting(path: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(str(path))
        return io.open(path, *arguments, **options)  # noqa: UP020 - `open` is this function

    monkeypatch.setattr("builtins.open", noting)  # the official checker opens rule files by it
    flood = [{**records[0], "key": f"key {number}"} for number in range(keys_before)]
    judgement = judged(tmp_path, [*flood, *records])
    assert judgement.official.verdict == "error"
    assert judgement.official.messages[0].line == keys_before + at(records, key) + 1
    assert not any("evil" in path for path in opened)
    assert not ran.exists()


def test_text_output_can_not_steer_a_terminal(tmp_path: Path) -> None:
    records = closed()
    records[at(records, "submission_division")]["value"] = "\x1b[2J\r\nPASS"
    done = compliance(str(write(tmp_path / "\x1b[31mresult_0.txt", records)))
    assert done.returncode == 1
    assert b"\x1b" not in done.stdout
    assert b"\r" not in done.stdout


def test_a_log_of_another_division_than_the_required_one_fails(tmp_path: Path, capsys: Captured) -> None:
    path = str(write(tmp_path / "result_0.txt", demo()))
    assert main(["--division", "open", path]) == 0
    capsys.readouterr()
    assert main(["--division", "closed", "--json", path]) == 1
    (finding,) = json.loads(capsys.readouterr().out)[0]["findings"]
    assert (finding["rule"], finding["line"]) == ("division-required", 4)


@pytest.mark.parametrize("where", ["result_0/system.json", "../../../systems/toy.json"])
@pytest.mark.parametrize(("described", "verdict"), [("closed", "pass"), ("open", "fail"), (None, "pass")])
def test_a_log_agrees_with_its_systems_division(
    tmp_path: Path, where: str, described: str | None, verdict: str
) -> None:
    path = write(tmp_path / "org" / "results" / "toy" / "bert" / "result_0.txt", closed())
    write(path.parent / where, json.dumps({"division": described}))
    judgement = judge_log(path, "5.0.0")
    assert judgement.verdict == verdict
    assert [breach.rule.id for breach in judgement.breaches] == ["division-system"] * (verdict == "fail")


def test_many_logs_are_judged_by_several_processes_in_order(tmp_path: Path) -> None:
    for number in range(100):
        records = closed() if number % 7 else setting("opt_name", "sgd")(closed())
        write(tmp_path / f"result_{number}.txt", records)
    done = compliance("--json", str(tmp_path))
    verdicts = json.loads(done.stdout)
    assert done.returncode == 1
    assert [Path(one["path"]).name for one in verdicts] == [f"result_{number}.txt" for number in range(100)]
    assert [one["verdict"] for one in verdicts] == ["pass" if number % 7 else "fail" for number in range(100)]


def test_a_flood_of_events_takes_seconds_is_noted_and_reaches_the_official_checker_whole(tmp_path: Path) -> None:
    records = closed()
    last = at(records, "eval_accuracy", -1)
    keys = ("block_start", "block_stop", "eval_start", "eval_stop")
    many = [{**records[at(records, key)], "time_ms": 1.8e12 + n} for n in range(3_000) for key in keys]
    many += [{**records[last], "value": 0.5}] * 12_000
    path = write(tmp_path / "result_0.txt", [*records[:last], *many, *records[last:]])
    began = time.process_time()
    judgement = judge_log(path, "5.0.0")
    assert time.process_time() - began < 20  # comparing every two events takes longer
    assert judgement.official.verdict == "pass"  # only the very last accuracy reaches the target
    assert "record-read" in {unchecked.rule for unchecked in judgement.not_applied}
    with path.open("rb") as stream:
        assert not Log(stream).in_memory


def judged_apart(log: Path) -> tuple[int, float]:
    """Judge a log in a process of its own: peak memory in KB and processor seconds."""
    if not Path("/proc/self/status").exists():
        pytest.skip("reads peak memory from /proc")  # resource's ru_maxrss counts the parent's too
    program = (
        "import re, sys, time; from pathlib import Path; from compliance.__main__ import main\n"
        "main(sys.argv[1:])\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]\n"
        "print(peak, time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(log)], capture_output=True, text=True, check=True)
    memory_kb, seconds = done.stderr.split()
    return int(memory_kb), float(seconds)


@pytest.mark.parametrize(
    "nasty",
    ["[", '["\\', '{"a":', ":::MLLOG", '{"a":1,"a":2},'],
)
def test_a_record_is_read_in_time_linear_in_its_length(tmp_path: Path, nasty: str) -> None:
    value = f'{{"time_ms": 1, "key": "x", "metadata": {{}}, "value": [{nasty * ((1 << 20) // len(nasty) - 80)}]}}'
    began = time.process_time()
    judged(tmp_path, text(closed()) + f":::MLLOG {value}\n:::MLLOG {value[:40_000]}\n")
    assert time.process_time() - began < 10  # quadratic reading takes hours


ONE_MB = 1 << 20
NASTY = {
    "other lines": b"step 7 of 2,100: loss 1.5, learning rate 0.001, 3041.5 samples/s\n",
    "statistics": b':::MLLOG {"time_ms":1,"key":"tracked_stats","metadata":{"step":9},"value":{"throughput":9.5}}\n',
    "accuracies": b':::MLLOG {"time_ms":1,"key":"eval_accuracy","metadata":{"epoch_num":448},"value":0.5}\n',
    "line ends": b"\n",
    "one line": b"x",
    "NUL": b"\0\n",
    "broken records": b":::MLLOG {\n",
    "no records": b":::MLLOGx\n",
    "small objects": b':::MLLOG {"time_ms":1,"key":"k","metadata":{},"value":[' + b"{}," * 340_000 + b"0]}\n",
    "smaller objects": b':::MLLOG {"time_ms":1,"key":"eval_accuracy","metadata":{},"value":[' + b"{}," * 140 + b"0]}\n",
    "many keys": b"".join(
        b':::MLLOG {"time_ms":1,"key":"k%d","metadata":{},"value":1.5}\n' % key for key in range(9_000)
    ),
    "long keys": b':::MLLOG {"time_ms":1,"key":"' + b"k" * (ONE_MB - 99) + b'","metadata":{},"value":1}\n',
    "settings": b':::MLLOG {"time_ms":1,"key":"opt_base_learning_rate","metadata":{},"value":1.5}\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("nasty", NASTY.values(), ids=NASTY.keys())
def test_200_mb_of_anything_take_at_most_300_mb_of_memory_and_a_minute(tmp_path: Path, nasty: bytes) -> None:
    block = nasty * max(1, ONE_MB // len(nasty))
    with (tmp_path / "result_0.txt").open("wb") as file:
        file.write(text(closed()[:-1]).encode())
        while file.tell() < 200 << 20:
            file.write(block)
        file.write(b"\n" + text(closed()[-1:]).encode())
    memory_kb, seconds = judged_apart(tmp_path / "result_0.txt")
    assert memory_kb < 300 * 1024
    assert seconds < 60


@pytest.mark.parametrize("number", [200, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutated_logs_are_judged_without_a_crash(tmp_path: Path, number: int) -> None:
    """The log that crashes the judge stays in `tmp_path`."""
    chance = random.Random(13)
    verdicts = set()
    for _ in range(number):
        log = write(tmp_path / "log.txt", mutated_log(chance))
        judgement = judge_log(log, chance.choice((*RULESETS, "5.1.0")))
        as_json(judgement.as_json())
        assert all(breach.found and breach.rule.id for breach in judgement.breaches)
        verdicts.add(judgement.verdict)
    assert verdicts == {"pass", "fail", "cannot-judge"}
