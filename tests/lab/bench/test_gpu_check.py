"""gpu_check.sh without a GPU: it finishes, names the parts that it skips, and its exit code shows failures."""

import contextlib
import io
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertbench.distributed.world import World
from bertbench.model.shape import BertShape
from lab.bench.gpu import product, training
from lab.bench.gpu.parts import GROUPS, PARTS, CheckPart
from lab.bench.gpu.report import Report
from lab.bench.gpu.testbed import Testbed, attempt, print_row, testbed
from lab.bench.gpu_check import run_part
from tests.conftest import Captured
from tests.ranks import run_ranks
from tests.training.as_on_a_gpu import as_on_a_gpu

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "bert" / "gpu_check.sh"
without_a_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "--out", folder, *words],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
@without_a_gpu
def test_without_a_gpu_parts_run_up_to_the_device_and_say_so(tmp_path: Path) -> None:
    done = check(tmp_path, "--only", "capture,step")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "gpu_check.json").read_text())
    assert {part["name"]: (part["status"], part["reason"]) for part in report["parts"]} == {
        "capture": ("not reached", "needs a GPU"), "step": ("not reached", "needs a GPU"),
    }  # fmt: skip
    first, *_, last = done.stderr.splitlines()
    assert str(tmp_path / "gpu_check.json") in first
    assert last == "gpu_check: held: none; failed: none; not reached: capture, step"


@pytest.mark.slow
@without_a_gpu
def test_without_a_gpu_the_whole_check_runs_to_its_end(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr
    ended = {part["name"]: part["status"] for part in json.loads(done.stdout)["parts"]}
    assert {name for name, status in ended.items() if status == "held"} == {
        "rates",
        "rates_in_8_bits",
        "steps",
        "trainer",
    }
    assert "failed" not in ended.values()


def test_missing_packages_stop_the_check_at_once_with_the_command_that_brings_them(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    python.chmod(0o755)
    bare = {"PYTHON": str(python), "PATH": os.environ["PATH"]}
    done = subprocess.run([SCRIPT, "--out", tmp_path], env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"gpu_check: {python} lacks torch numpy h5py pytest; set PYTHON")
    for package in ("torch", "numpy", "h5py", "pytest"):
        (tmp_path / "packages" / package).mkdir(parents=True)
    bare["PYTHONPATH"] = str(tmp_path / "packages")
    done = subprocess.run([SCRIPT, "--out", tmp_path], env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"make wheels WHEELS_FOR={version}" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "gpu_check.json").exists()


def test_every_group_fits_into_a_command_of_600_s() -> None:
    seconds = {group: sum(part.limit_s for part in PARTS if part.group == group) for group in GROUPS}
    assert len(seconds) <= 3
    assert max(seconds.values()) < 590, seconds  # the script starts within ten


SPEAKER = "import sys, time; print('{}', flush=True); print('why', file=sys.stderr); {}"


@pytest.mark.parametrize(("row", "then", "status", "reason"), [
    ('{"a": 1, "holds": true}', "", "held", ""),
    ('{"a": "bf16", "holds": false}', "", "failed", "bf16: doesn't hold"),
    ('{"a": 1, "holds": true}', "sys.exit(3)", "failed", "ended with 3: why"),
    ('{"a": 1, "holds": true}', "time.sleep(60)", "failed", "exceeded its limit of 1 s"),
    ("", "sys.stderr.write('--device cuda: found no GPU'); sys.exit(2)", "not reached", "needs a GPU"),
    ("no answer", "", "failed", "gave no result: why"),
])  # fmt: skip
def test_a_part_ends_as_its_rows_and_its_exit_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, then: str, status: str, reason: str
) -> None:
    (tmp_path / "speaker.py").write_text(SPEAKER.replace("{}", row, 1).replace("{}", then))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    part = CheckPart("made up", "where", "", 1 if "sleep" in then else 60, command="speaker")
    report = Report(tmp_path, [part])
    assert run_part(part, report) == f"{status} {reason}".rstrip()
    assert report.failed == (status == "failed")


REHEARSED = """
import sys
from bertbench.common import children
from lab.bench import gpu_check
from lab.bench.gpu.parts import CheckPart
gpu_check.PARTS = [CheckPart(name, name, "", 90, f"speaker {name}") for name in ("quick", "long", "never")]
children.begin()
sys.exit(gpu_check.main(["--only", ",".join(sys.argv[2:]), "--out", sys.argv[1]]))
"""
SLOW_SPEAKER = """
import os, sys, time
print('{"part": "%s", "pid": %d, "holds": true}' % (sys.argv[1], os.getpid()), flush=True)
time.sleep(80 * (sys.argv[1] == "long"))
"""


@pytest.mark.slow
def test_a_command_killed_in_a_part_loses_no_row_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "speaker.py").write_text(SLOW_SPEAKER)
    (tmp_path / "rehearsed.py").write_text(REHEARSED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    def parts() -> list[tuple[str, str, int]]:
        report = tmp_path / "gpu_check.json"
        found = json.loads(report.read_text())["parts"] if report.exists() else []
        return [(part["name"], part["status"], len(part["rows"])) for part in found]

    command = [sys.executable, str(tmp_path / "rehearsed.py"), str(tmp_path)]
    process = subprocess.Popen([*command, "quick", "long"])
    both = [("quick", "held", 1), ("long", "failed", 1)]
    assert became(lambda: parts() == both), parts()
    process.kill()  # as a harness does at its limit
    process.wait()
    long = json.loads((tmp_path / "gpu_check.json").read_text())["parts"][1]
    assert long["reason"] == "the command ended while it ran"
    assert became(lambda: not Path("/proc", str(long["rows"][0]["pid"])).exists()), "it would keep the GPU"
    subprocess.run([*command, "never"], check=True, capture_output=True)
    assert parts() == [*both, ("never", "held", 1)]


def became(holds: Callable[[], bool], limit_s: float = 60) -> bool:
    """Wait until a condition is true."""
    end = time.monotonic() + limit_s
    while not holds() and time.monotonic() < end:
        time.sleep(0.1)
    return holds()


def test_a_choice_that_fails_says_so_and_the_others_still_run(capsys: Captured) -> None:
    def fail() -> None:
        raise RuntimeError("traceback\nno such kernel\n")

    attempt("one", fail)
    attempt("two", lambda: print_row({"choice": "two"}))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"choice": "one", "holds": False, "error": "RuntimeError: no such kernel"}, {"choice": "two"},
    ]  # fmt: skip


def test_a_choice_takes_the_same_steps_as_the_plain_one() -> None:
    here, choices = testbed()._replace(device="cpu", steps=2), ((), ("optimizer.sharded=true",))
    (row,), nothing = run_ranks(2, said_by, training.compare_on_rank, here, *choices, 1e-4)
    assert (row["choice"], row["ranks"], row["holds"]) == ("optimizer.sharded=true", 2, True)
    assert nothing == [], "rank 0 speaks for both"


@pytest.mark.parametrize("gpus", [1, 8])
def test_every_choice_is_a_system_that_the_device_may_run(gpus: int) -> None:
    here, there = (testbed()._replace(device=device, gpus=gpus) for device in ("cpu", "cuda"))
    assert all(training.system_of_choice(choice, here, 1) for choice in training.choices(here.device))
    for choice in (*training.choices(there.device), *training.recorded()):
        assert training.system_of_choice(choice, there, gpus).world_size == gpus


@pytest.mark.slow
def test_the_product_is_run_and_its_losses_and_rate_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    system = product.write_system(tmp_path, BertShape(512, 16, 2, 2, 24, 48), batch=6, steps=30)
    settings = ("launch.device=cpu", "hardware.accelerators_per_node=0", "precision.compute=fp32")
    row = product.trained(str(system), settings, codes=(0, 3))
    assert (row["steps"], row["samples"]) == (30, 180)
    assert row["samples_per_s"] > 0
    assert row["first_loss"] == pytest.approx(math.log(512) + math.log(2), abs=0.2)
    assert not row["holds"]  # so few steps teach nothing


def test_recorded_steps_are_compared_with_plain_ones() -> None:
    ((row,),) = run_ranks(1, compared_with_recorded, testbed()._replace(device="cpu"))
    assert (row["choice"], row["holds"]) == ("compute.compile=graphs", True)


def compared_with_recorded(world: World, here: Testbed) -> list[dict[str, Any]]:
    with as_on_a_gpu():
        return said_by(world, training.compare_on_rank, here, (), ("compute.compile=graphs",), 1e-4)


def said_by(world: World, part: Callable[..., None], *arguments: object) -> list[dict[str, Any]]:
    """Return a part's result in this process, which writes to another folder."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        part(world, *arguments)
    return [json.loads(line) for line in said.getvalue().splitlines()]


@pytest.mark.slow
def test_tests_say_how_they_end_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "test_made_up.py").write_text(
        "import pytest\n"
        "def test_a(record_property): record_property('context', '0.1')\n"
        "def test_b(): pytest.skip('no such thing')\n"
        "def test_c(): assert 3 == 4\n"
    )
    pytest_words = next(part.command for part in PARTS if part.name == "tests").replace("tests/gpu", "")
    part = CheckPart("made up", "product", "", 300, f"{pytest_words} -c/dev/null {tmp_path}")
    report = Report(tmp_path, [part])
    ended = run_part(part, report)
    one, skipped, wrong = report.rows(part)
    assert one == {"test": "test_a", "holds": True, "context": "0.1"}
    assert skipped == {"test": "test_b", "not_reached": "Skipped: no such thing"}
    assert ended == "failed test_c: assert 3 == 4"
    assert not wrong["holds"]
