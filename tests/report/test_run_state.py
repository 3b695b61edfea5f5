"""The state of a run, from its files alone: while they grow, after they were cut back, and after the run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertbench.report.followed_run import FollowedRun
from bertbench.report.rank_processes import RankProcess, ranks_on_this_machine
from bertbench.report.run_state import TargetForecast, earlier_runs, phases, state_of, target_forecast
from bertbench.report.terminal_page import plot
from tests.compliance.logs import RESULTS
from tests.conftest import Answer, Printed
from tests.report.written import CONFIG, START_S, log_lines, row, write_run
from tests.training.test_run import wait_for


def test_a_run_that_goes_back_to_a_snapshot_forgets_the_steps_after_it(tmp_path: Path) -> None:
    log = write_run(tmp_path, steps=4, until_ms=600, status=None)
    run = FollowedRun(log)
    assert list(run.rows) == [1, 2, 3, 4]
    metrics = run.folder / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write(row(3, loss=1.5) + "{broken\n" + row(4)[:20])
    assert run.read() == [3]
    assert list(run.rows) == [1, 2, 3]
    assert run.rows[3]["loss"] == 1.5
    metrics.write_text(row(1) + row(2))  # cut back
    assert run.read() == [1, 2]
    assert list(run.rows) == [1, 2]


def test_the_phases_of_a_run_add_up_to_its_clock(tmp_path: Path) -> None:
    state = state_of(FollowedRun(write_run(tmp_path)))
    # 0.5 s to the first block, 6 steps of 1 s of which 0.1 s each was waiting, 2 evaluations of 0.5 s, 8 s in all
    assert state.phases_s == pytest.approx(
        {"start-up": 0.5, "steps": 5.4, "waiting for data": 0.6, "evaluation": 1.0, "other": 0.5}
    )
    assert state.elapsed_s == 8
    assert (state.status, state.seed, state.commit, state.world_size) == ("success", 7, "abcdef0123456789", 2)
    assert (state.step, state.max_steps, state.samples, state.loss) == (6, 40, 600, 4)
    assert (state.accuracy, state.target, state.samples_per_s) == (0.5, 0.5, 100)
    assert (state.next_evaluation_s, state.target_forecast, state.straggler) == (None, None, None)


def test_phases_up_to_an_evaluation_hold_nothing_that_came_after(tmp_path: Path) -> None:
    run = FollowedRun(write_run(tmp_path))
    until = phases(run, 1e3 * START_S + 3900, 300)  # 0.4 s into the first evaluation
    assert until == pytest.approx(
        {"start-up": 0.5, "steps": 2.7, "waiting for data": 0.3, "evaluation": 0.4, "other": 0.0}
    )


def test_an_unfinished_run_shows_when_it_evaluates_next(tmp_path: Path) -> None:
    log = write_run(tmp_path, steps=4, until_ms=4000, status=None)
    in_a_second = time.time() + 1  # a file from then isn't silent yet, however slow this machine is
    os.utime(log, (in_a_second, in_a_second))
    state = state_of(FollowedRun(log), earlier=[450, 600, 900])
    assert state.status == "running"
    assert state.next_evaluation_s == 2  # 200 samples at 100 a second
    assert state.target_forecast == TargetForecast(600, 450, 900, "earlier runs of this system")
    # 200 samples: 2 s of steps, and 0.5 s of evaluation in 300 samples so far
    assert state.target_s == pytest.approx(2 + 200 * 0.5 / 300)
    a_second_ago = time.time() - 1
    for path in (log, log.with_suffix("") / "metrics.jsonl"):
        os.utime(path, (a_second_ago, a_second_ago))
    silent = state_of(FollowedRun(log))
    assert silent.next_evaluation_s == pytest.approx(1, abs=0.5)  # a GPU's steps aren't written before it
    assert silent.samples == 400


def test_earlier_runs_are_those_of_the_same_system_and_target_that_reached_it(tmp_path: Path) -> None:
    write_run(tmp_path, number=0)
    write_run(tmp_path, number=1, status="aborted")
    other = write_run(tmp_path, number=2)
    config = json.loads((other.with_suffix("") / "config.json").read_text())
    (other.with_suffix("") / "config.json").write_text(json.dumps(config | {"evaluation": {"target": 0.3}}))
    mine = write_run(tmp_path, number=3, status=None)
    assert earlier_runs(mine) == [600]


def test_a_forecast_without_earlier_runs_continues_at_the_curves_slope() -> None:
    curve = [(100.0, 0.1), (200.0, 0.2), (300.0, 0.25)]
    found = target_forecast(curve, 0.5, [])  # 0.25 is missing: at the last slope, 0.05 in 100, 500 samples
    assert found.samples == pytest.approx(800)
    assert target_forecast(curve[:1], 0.5, []) is None
    assert target_forecast([(100.0, 0.2), (200.0, 0.1)], 0.5, []) is None  # it gets worse: nobody knows
    assert target_forecast(curve, 0.5, [200, 400, 500]) == TargetForecast(450, 400, 500, "earlier runs of this system")


def test_the_ranks_of_a_run_are_found_among_all_processes(tmp_path: Path) -> None:
    log = tmp_path / "result_0.txt"
    code = "import os, time\nos.fork()\nprint(flush=True)\ntime.sleep(60)"  # a child of a rank is none
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, "--result", "result_0.txt"], cwd=tmp_path, stdout=subprocess.PIPE,
            env={**os.environ, "RANK": str(number)}, start_new_session=True,
        )
        for number in range(2)
    ]  # fmt: skip
    try:
        for process in started:
            for _ in range(2):
                process.stdout.readline()
        wait_for(lambda: {rank.state for rank in ranks_on_this_machine(log)} == {"S"})
        assert ranks_on_this_machine(log) == [
            RankProcess(number, process.pid, "S") for number, process in enumerate(started)
        ]
        assert ranks_on_this_machine(tmp_path / "result_1.txt") == []
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_a_launcher_in_the_shell_of_srun_pty_is_not_taken_for_a_rank(tmp_path: Path) -> None:
    rank = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", "--result", "result_0.txt"]
    launcher = (
        "import os, subprocess\n"
        "own = {'RANK': '0', 'BERTBENCH_LAUNCHER_PID': str(os.getpid())}\n"
        f"subprocess.run({rank!r}, env={{**os.environ, **own}})"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", launcher, "--result", "result_0.txt"], cwd=tmp_path, stdout=subprocess.PIPE,
        env={**os.environ, "SLURM_PROCID": "0"}, start_new_session=True,
    )  # fmt: skip
    try:
        assert started.stdout is not None
        started.stdout.readline()
        (found,) = ranks_on_this_machine(tmp_path / "result_0.txt")
        assert found.pid != started.pid
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def test_a_plot_has_one_star_per_point_and_labels_its_ends() -> None:
    assert plot([(0, 0), (2, 0.5), (3, 1)], width=12, height=3) == ["      1    *", "          * ", "      0 *   "]
    assert plot([], 40, 4) == []
    assert plot([(0, 2.0), (1, 2.0)], width=12, height=2, level=1.0) == ["      2 *  *", "      1 ----"]


def test_watch_shows_a_finished_run(printed: Printed) -> None:
    shown = printed("watch", RESULTS / "result_0.txt")
    for text in ("cpu_demo/bert/result_0", "success", "seed 2557128240", "commit 85804e9", "179,200 samples",
                 "loss by step", "accuracy by samples", "best 0.4085", "target 0.4", "steps 9"):  # fmt: skip
        assert text in shown
    assert max(map(len, shown.splitlines())) <= 120


def test_a_run_that_is_cut_short_by_samples_has_the_steps_that_it_takes(tmp_path: Path) -> None:
    log = write_run(tmp_path)
    cut = {**CONFIG, "evaluation": {"target": 0.5, "max_samples": 501}}  # 6 steps of 100, as --smoke writes it
    (log.with_suffix("") / "config.json").write_text(json.dumps(cut))
    assert state_of(FollowedRun(log)).max_steps == 6


@pytest.mark.parametrize(("columns", "expected"), [("70", 70), ("131", 130), (None, 120), ("many", 120)])
def test_watch_respects_columns_without_a_terminal(
    columns: str | None, expected: int, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, printed("watch", RESULTS / "result_0.txt").splitlines())) == expected


def test_watch_shows_a_run_that_has_no_step_yet(
    tmp_path: Path, answer: Answer, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "toy" / "bert"
    folder.mkdir(parents=True)
    (folder / "result_0.txt").touch()
    monkeypatch.setenv("LOGDIR", str(tmp_path))
    state = answer("watch")  # the newest of LOGDIR
    assert (state["name"], state["status"], state["step"], state["loss"]) == ("toy/bert/result_0", "running", 0, None)
    assert "no step has been recorded yet" in printed("watch", "--once")


def test_a_half_written_log_of_any_name_is_shown_as_far_as_it_goes(tmp_path: Path, answer: Answer) -> None:
    log = write_run(tmp_path).rename(tmp_path / "mine.txt")
    log.write_text(log_lines(3500) + log_lines()[-60:-20])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "metrics.jsonl").write_text(row(1) + row(2)[:30])
    state = answer("watch", log)
    assert (state["step"], state["accuracy"]) == (1, None)
