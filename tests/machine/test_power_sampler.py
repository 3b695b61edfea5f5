"""The process that samples power during a run, with the test's own ipmitool."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.training.test_run import wait_for

WATTS = 250


@pytest.fixture(autouse=True)
def metered(program: Program) -> None:
    """A node whose ipmitool reads the same power all the time."""
    program("ipmitool", f'echo "Instantaneous power reading:   {WATTS} Watts"')


def alive(process: int) -> bool:
    """Return whether a process is running; one that only waits to be collected is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sampling(file: Path) -> list[str]:
    return [sys.executable, "-m", "bertbench.machine.power_sampler", str(file), "20", str(os.getpid())]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_readings_come_as_often_as_asked_until_it_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "node_0.jsonl"
    with subprocess.Popen(sampling(file), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_for(lambda: len(lines(file)) > 10, 60)
        process.terminate()
    assert process.returncode == 0
    header, *readings = lines(file)
    assert "ipmi" in header["meters"]
    assert {reading["watts"] for reading in readings} == {WATTS}
    times = [reading["time_ms"] for reading in readings]
    assert times == sorted(times)
    assert 40 <= (times[-1] - times[0]) / (len(times) - 1) < 1000  # 50 ms on a quiet machine
    assert abs(times[-1] / 1e3 - time.time()) < 60


def test_it_dies_with_the_run(tmp_path: Path) -> None:
    file = tmp_path / "node_0.jsonl"
    parent = subprocess.Popen(
        [sys.executable, "-c", "import os, subprocess, sys, time; "
         "process = subprocess.Popen([*sys.argv[1:], str(os.getpid())]); print(process.pid, flush=True); "
         "time.sleep(600)", *sampling(file)[:-1]],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    sampler = int(parent.stdout.readline())
    wait_for(lambda: len(lines(file)) > 1, 60)
    parent.kill()
    parent.wait()
    wait_for(lambda: not alive(sampler), 10)


def sampled(file: Path, readings: int) -> str:
    """Sample until there are that many readings, including missed ones; return the warnings."""
    with subprocess.Popen(sampling(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: len(lines(file)) > readings, 60)
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def test_a_missed_reading_is_skipped_and_counted_and_sampling_continues(tmp_path: Path, program: Program) -> None:
    calls = tmp_path / "calls"
    program(
        "ipmitool",
        f'echo >> {calls}; [ $(wc -l < {calls}) -eq 4 ] && echo "Node busy" >&2 && exit 1; '
        f'echo "Instantaneous power reading:   {WATTS} Watts"',
    )
    file = tmp_path / "node_0.jsonl"
    said = sampled(file, 8)
    readings = lines(file)[1:]
    assert [reading.get("watts", "missed") for reading in readings].count("missed") == 1
    assert all(reading["watts"] == WATTS for reading in readings if "missed" not in reading)
    assert said.count("a power reading is missing") == 1
    assert "Node busy" in said
    assert "1 of " in said, "a twelfth of them is many"


def test_a_meter_that_stops_answering_raises_one_warning_and_is_counted(tmp_path: Path, program: Program) -> None:
    file = tmp_path / "node_0.jsonl"
    with subprocess.Popen(sampling(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        program("ipmitool", 'echo "no such sensor" >&2')
        wait_for(lambda: sum("missed" in line for line in lines(file)) > 3, 60)
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.count("no such sensor") == 1
    assert "power readings are missing" in said
    assert "Traceback" not in said


def test_ipmi_that_reads_0_watts_is_not_used_and_the_reason_is_given(tmp_path: Path, program: Program) -> None:
    program("ipmitool", 'echo "Instantaneous power reading:   0 Watts"; echo "Power reading state is:   deactivated"')
    file = tmp_path / "node_0.jsonl"
    done = subprocess.run(sampling(file), capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 0:
        pytest.skip("this machine has another meter, too")
    assert "IPMI: node reads 0 W, expected more than 0" in done.stdout
    assert not file.exists()
