"""The side process of a run: it serves and tracks during the run, ends with it, and never harms it."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertbench.common.errors import ConfigError
from bertbench.distributed.spawn import free_port
from bertbench.report.openmetrics import address
from bertbench.report.side_process import SideWork
from tests.conftest import Captured, Printed
from tests.faults.test_left_behind import read
from tests.report.test_trackers import Kept
from tests.report.written import write_run
from tests.training.test_run import launched, wait_for, words


def scraped(port: int) -> dict[str, float]:
    """Numbers by name and labels, as OpenMetrics' own parser reads them."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families  # noqa: PLC0415

    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    with urllib.request.urlopen(asked, timeout=5) as answer:
        text = answer.read().decode()
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def side_processes(log: Path) -> list[int]:
    words = f"bertbench.report.side_process\0{log}".encode()
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if words in read(path)]


def test_a_port_is_served_on_loopback_unless_an_address_is_given() -> None:
    assert address("9100") == ("127.0.0.1", 9100)
    assert address("0.0.0.0:80") == ("0.0.0.0", 80)
    assert address("[::1]:81") == ("::1", 81)
    for text in ("0", "65536", "http", "host:", "-1"):
        with pytest.raises(ConfigError, match="expected a port from 1 to 65535, or HOST:PORT"):
            address(text)


def test_a_port_in_use_is_one_clear_line_before_anything_starts(
    tiny_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    pytest.importorskip("prometheus_client")
    monkeypatch.setenv("LOGDIR", str(tmp_path / "runs"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        complaint = printed("train", tiny_file, "--metrics-port", port, code=2)
    assert complaint == (
        f"bertbench: --metrics-port: port {port} of 127.0.0.1 can't be used (Address already in use); name a free port "
        "of this machine\n"
    )
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    """A side process for an unfinished written run, started as a rank starts it."""
    pytest.importorskip("prometheus_client")
    log, port = write_run(tmp_path / "toy" / "bert", steps=2, until_ms=500, status=None), free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "bertbench.report.side_process", str(log), str(tmp_path), str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "RANK": "0"},
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    yield process, log, port
    process.kill()
    process.wait()
    process.stdout.close()


def test_openmetrics_show_the_state_of_the_run(beside: tuple[subprocess.Popen[str], Path, int]) -> None:
    process, log, port = beside
    first = scraped(port)
    assert (first["bertbench_step"], first["bertbench_loss"], first["bertbench_running"]) == (2, 8, 1)
    assert first["bertbench_run_info commit=abcdef0123456789 run=toy/bert/result_0 seed=7 system=toy"] == 1
    assert 0 <= first["bertbench_next_evaluation_s"] <= 1  # 100 samples at 100 a second
    assert "bertbench_accuracy" not in first
    write_run(log.parent)
    wait_for(lambda: scraped(port)["bertbench_step"] == 6, 10)
    last = scraped(port)
    assert (last["bertbench_running"], last["bertbench_accuracy"]) == (0, 0.5)
    assert last["bertbench_phase_seconds phase=evaluation"] == 1
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the run, which ends first
        process.send_signal(number)
    time.sleep(0.2)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(10) == 0


@pytest.mark.slow
def test_a_client_that_hangs_up_and_files_that_vanish_for_a_while_end_nothing(
    beside: tuple[subprocess.Popen[str], Path, int],
) -> None:
    process, log, port = beside
    for request in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(request)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets it
    away = log.parent.rename(log.parent.with_name("away"))
    time.sleep(6)  # longer than it takes to look again
    assert scraped(port)["bertbench_step"] == 2
    away.rename(log.parent)
    write_run(log.parent)
    wait_for(lambda: scraped(port)["bertbench_step"] == 6, 10)
    assert process.poll() is None


class Failing(Kept):
    """A tracker that refuses points while it is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.cut_off = False

    def record(self, points: Any) -> None:
        if self.cut_off:
            raise ConnectionError("no route to host")
        super().record(points)


def test_a_tracker_that_fails_for_a_while_gets_every_step_later_and_raises_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    tracker = Failing()
    monkeypatch.setattr("bertbench.report.side_process.open_tracker", lambda *_: tracker)
    monkeypatch.setattr("bertbench.report.side_process.SHARE", 1e6)  # of a processor: time enough at every look
    log = write_run(tmp_path / "toy" / "bert", steps=2, status=None)
    side = SideWork(log, tmp_path, ["mlflow"])
    tracker.cut_off = True
    for steps in (3, 4, 5):
        write_run(log.parent, steps=steps, status=None)
        side.look()
    assert [point.step for point in tracker.points] == [1, 2]
    tracker.cut_off = False
    write_run(log.parent)
    side.look()
    side.close()
    assert [point.step for point in tracker.points] == [1, 2, 3, 4, 5, 6]
    assert tracker.ended[0] == "success"
    said = capsys.readouterr().err
    assert said.count("warning: ") == said.count("mlflow: ConnectionError('no route to host'); the run continues") == 1


def test_a_tracker_that_fails_to_the_end_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    tracker = Failing()
    monkeypatch.setattr("bertbench.report.side_process.open_tracker", lambda *_: tracker)
    log = write_run(tmp_path / "toy" / "bert", steps=2, status=None)
    side = SideWork(log, tmp_path, ["mlflow"])
    tracker.cut_off = True
    write_run(log.parent)
    side.close()
    assert "the run continues, and `bertbench track` records it afterwards" in capsys.readouterr().err


def test_a_run_is_served_and_tracked_until_it_ends(tiny_file: str, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    port, log = free_port(), tmp_path / "runs" / "tiny" / "bert" / "result_0.txt"
    settings = words(("evaluation.target=0.999", "schedule.max_steps=1000", "evaluation.interval_samples=4000"))
    options = ["--track", "tensorboard", "--metrics-port", port, *settings]

    def steps() -> float:
        try:
            return scraped(port).get("bertbench_step", 0)
        except OSError:
            return -1

    with launched("train", tiny_file, *options, LOGDIR=str(log.parents[2])) as run:
        wait_for(lambda: steps() > 0, 60)
        assert scraped(port)["bertbench_running"] == 1
        _, complaints = run.communicate(timeout=120)
    assert run.returncode == 3, complaints
    assert "warning" not in complaints
    assert side_processes(log) == []
    events = EventAccumulator(str(tmp_path / "runs" / "tensorboard" / "tiny" / "bert" / "result_0"), {"scalars": 0})
    events.Reload()
    rows = (log.with_suffix("") / "metrics.jsonl").read_text().splitlines()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 1001))
    losses = [json.loads(row)["loss"] for row in rows]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(losses)
    assert len(events.Scalars("eval/accuracy")) == 3
