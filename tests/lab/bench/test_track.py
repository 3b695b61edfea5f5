"""`lab track`: windows out of a run's lines, the cost by pairs of them, and the command on a real run."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertbench.cli import main
from bertbench.common.errors import RunError
from bertbench.config import load_system
from bertbench.tracking.ranks import children
from lab.bench.track import Window, contest, cost_of, drawn, windows


def test_a_window_has_the_steps_and_the_seconds_between_two_marks() -> None:
    content = b"1\n22\n333\n4444\n"
    marks = [(2, 10.0), (9, 10.5), (14, 10.6)]
    on, off = windows([True, False], marks, content)
    assert on == Window(True, 0.5, 2)
    assert on.step_s == 0.25
    assert (off.on, off.steps, off.seconds) == (False, 1, pytest.approx(0.1))
    with pytest.raises(RunError, match="saw no step end"):
        windows([True], [(2, 10.0), (2, 10.0)], content)


def test_the_cost_is_the_mean_over_pairs_of_what_each_pair_lost(tiny_file: str) -> None:
    def steps(on: bool, log_step_s: float) -> Window:
        return Window(on, 100 * math.exp(log_step_s), 100)

    # a machine that becomes twice as slow between the pairs; logarithms of ratios: 0.01 and 0.03
    measured = [steps(False, 0), steps(True, 0.01), steps(True, math.log(2) + 0.03), steps(False, math.log(2))]
    cost = cost_of(load_system(tiny_file), ["mlflow"], measured, used_s=0.3)
    # standard deviation 0.0141, of the mean 0.01; Student's t has 12.706 at 97.5 % with one degree of freedom
    assert cost.slower == pytest.approx(math.exp(0.02) - 1)
    assert cost.low == pytest.approx(math.exp(0.02 - 0.12706) - 1, abs=1e-5)
    assert cost.high == pytest.approx(math.exp(0.02 + 0.12706) - 1, abs=1e-5)
    assert (cost.pairs, cost.step_ms_off) == (2, pytest.approx(1500))
    assert cost.processor_share == pytest.approx(0.3 / (100 * math.exp(0.01) + 200 * math.exp(0.03)))


def test_each_pair_has_both_windows_in_an_order_of_the_seed() -> None:
    order = list(drawn(20, seed=3))
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert set(pairs) == {(True, False), (False, True)}
    assert order == list(drawn(20, seed=3))
    assert order != list(drawn(20, seed=4))


def test_the_run_has_no_evaluation_and_no_end_in_reach(tiny_file: str) -> None:
    system, _, pairs = contest(tiny_file, ["evaluation.target=0.1"], minutes=1)
    assert (system.max_steps, pairs) == (10_000_000, 6)
    assert [stop for _, stop in system.blocks(0)] == [10_000_000]
    assert system.evaluation.target > 0.99


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--minutes", "0.2"], "--minutes 0.2: expected at least 0.3, two pairs of windows of 5 s"),
        (["--track", "excel"], "--track: unknown 'excel'; choose of tensorboard, mlflow, wandb-offline"),
        (["--system", "dgxh200_n1"], "dgxh200_n1: found ranks on cuda, expected cpu"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lab.commands.track.check_installed", lambda _: None)
    assert main(["lab", "track", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def states_of_side_processes(pid: int) -> set[str]:
    """proc(5)'s states of the side process below a process."""
    found: set[str] = set()
    for child in children(pid):
        found |= states_of_side_processes(child)
        try:
            if b"bertbench.tracking.side" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_run_goes_on_while_its_trackers_are_stopped_and_nothing_is_left_of_it(tiny_file: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    program = (
        "import sys; from lab.bench import track; from bertbench.cli import main; "
        "track.WINDOW_S, track._WARM_UP_S = 1.0, 2.0; sys.exit(main(sys.argv[1:]))"
    )
    words = ["lab", "track", "--track", "tensorboard", "--system", tiny_file, "--minutes", "0.2", "--json"]
    bench = subprocess.Popen(
        [sys.executable, "-c", program, *words, "--record", str(tmp_path / "track.json")],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    seen = set()
    while bench.poll() is None:
        seen |= states_of_side_processes(bench.pid)
        time.sleep(0.1)
    assert bench.stdout is not None
    cost = json.loads(bench.stdout.read())["cost"]
    assert bench.returncode == 0
    assert {"T", "S"} <= seen, "stopped in some windows, asleep between two looks in others"
    assert (cost["pairs"], cost["trackers"]) == (6, ["tensorboard"])
    assert cost["low"] < cost["slower"] < cost["high"]
    assert 0 <= cost["processor_share"] < 0.1
    assert json.loads((tmp_path / "track.json").read_text())["results"]["cost"] == cost
    assert list(tmp_path.rglob("metrics.jsonl")) == [], "the run's folder is gone"
    mine = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)]
    assert mine == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_a_run_that_fails_ends_the_bench_with_its_last_line(
    tiny_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    words = ["--track", "tensorboard", "--system", tiny_file, "--set", "optimizer.learning_rate=1e30"]
    assert main(["lab", "track", *words, "--minutes", "1"]) == 1
    assert "bertbench: the run ended by itself: " in capsys.readouterr().err
