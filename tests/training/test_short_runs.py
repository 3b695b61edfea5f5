"""`train --smoke` and `--profile`: a few real steps, whose logs can't be mistaken for results."""

import json
from pathlib import Path

import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.json_files import json_lines
from bertbench.runs.log_spans import startup
from bertbench.runs.run_progress import RunProgress
from bertbench.runs.trace_format import RUN
from bertbench.training.build import TrainOptions
from bertbench.training.short_run import PROFILED_STEPS, Profiler, shortened
from bertbench.training.train import train
from compliance import judge_log
from compliance.__main__ import main as judge
from tests.conftest import Printed, Tiny
from tests.ranks import run_command, run_ranks
from tests.whole_runs import metrics, words

WITHOUT_RESULT = {"not-a-result", "run-success"}


def rules(log: Path) -> set[str]:
    return {breach.rule.id for breach in judge_log(log, "5.0.0").breaches}


def test_a_smoke_run_takes_a_few_steps_of_everything_and_is_not_a_result(tiny_file: str, tmp_path: Path) -> None:
    # evaluations every 36 samples, and a target that this seed reaches at once: else the run would be aborted anyway
    settings = ("evaluation.target=1e-9", "checkpoint.every_steps=1000", "schedule.max_steps=1000")
    command = ["train", tiny_file, "--smoke", "--seed", "5", *words(settings)]
    done = run_command(2, command, tmp_path)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "runs" / "tiny" / "smoke" / "smoke_0.txt"
    assert len(metrics(log)) == 5
    assert [path.name for path in ResultFiles(log).snapshots.iterdir()] == ["step_3"]
    judgement = judge_log(log, "5.0.0")
    assert judgement.official.verdict == "pass"
    assert judgement.facts is not None
    assert [evaluation.samples for evaluation in judgement.facts.evaluations] == [60]
    assert startup(judgement.facts) is not None
    assert rules(log) == WITHOUT_RESULT
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "not_a_result" not in line))
    assert rules(log) == {"run-success"}
    assert judge([str(tmp_path / "runs")]) == 2, "a folder's runs are those named as results"


REFUSED = {
    "--smoke --result RUNS/result_7.txt": "--smoke",
    "--profile": "schedule.max_steps",
    "--smoke --resume auto": "--resume",
}


@pytest.mark.parametrize(("words", "expected"), REFUSED.items())
def test_a_short_run_doesn_t_replace_a_result(
    tiny_file: str, tmp_path: Path, printed: Printed, words: str, expected: str
) -> None:
    assert expected in printed("train", tiny_file, *words.replace("RUNS", str(tmp_path)).split(), code=2)
    assert not list(tmp_path.rglob("result_*"))


def profiled(world: World, system: System, log: Path) -> str:
    files = ResultFiles(log) if world.leads else None
    if files:
        files.folder.mkdir()
    world.barrier()
    profiler = Profiler(world, on=True)
    short = shortened(system, "profile")
    train(
        short,
        world,
        5,
        files,
        RunProgress(short, enabled=False),
        TrainOptions(profiler=profiler, not_a_result="profile"),
    )
    return profiler.write(files) if files else ""


def test_a_profiled_run_leaves_its_trace_and_says_where_a_step_goes(tiny: Tiny, tmp_path: Path) -> None:
    log = tmp_path / "profile_0.txt"
    printed, nothing = run_ranks(2, profiled, tiny("clip.mode=bucket", "schedule.max_steps=1000"), log)
    assert nothing == ""
    assert len(metrics(log)) == PROFILED_STEPS
    assert rules(log) == WITHOUT_RESULT
    trace = [*json_lines(log.with_suffix("") / "trace.json")]
    profiled_steps = [event for event in trace if event.get("name", "").startswith("ProfilerStep#")]
    assert len(profiled_steps) == 5
    training, *_ = (event["ts"] for event in trace if (event.get("pid"), event.get("name")) == (RUN, "training"))
    assert all(0 < event["ts"] - training < 600e6 for event in profiled_steps)  # at their time since 1970
    _, _, *rows, total = printed.splitlines()
    assert {row.split()[0] for row in rows} == {"data", "forward", "backward", "optimizer", "wait"}
    assert sum(float(row.split()[1]) for row in rows) == pytest.approx(float(total.split()[2]), abs=0.05)


def test_a_log_counts_the_samples_of_each_stratum_that_quotas_drew(tiny_file: str, tmp_path: Path) -> None:
    log = tmp_path / "smoke_7.txt"
    settings = (
        "data.balance=stratified_presort", "data.strata_edges=[28,29]", "data.strata_quotas=[5,1]",
        "schedule.warmup_steps=3", "schedule.start_warmup_step=-1", "schedule.max_steps=9",
        "schedule.decay_from=warmup_steps", "schedule.first_step=1",
    )  # fmt: skip
    run_command(2, ["train", tiny_file, "--smoke", "--seed", "5", "--result", str(log), *words(settings)], tmp_path)
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text().splitlines()]
    logged = {line["key"]: line for line in lines}
    assert logged["bertbench_strata"]["value"] == {"edges": [28, 29], "quotas": [5, 1]}
    drawn = logged["bertbench_samples_by_stratum"]  # of 5 steps on 2 ranks
    in_dataset = drawn["metadata"]["in_dataset"]
    assert drawn["value"] == [50, 10]
    assert sum(in_dataset) == 298
    assert drawn["metadata"]["passes"] == pytest.approx([50 / in_dataset[0], 10 / in_dataset[1]], abs=1e-6)
    schedule = logged["bertbench_schedule"]["value"]
    assert (schedule["first_step"], schedule["decay_from_step"]) == (1, 3)
    # the schedule's own steps, though the smoke run takes 5: warm-up 1 / 3 and 2 / 3 of 0.01, then 1 - (s - 3) / 6
    rates = {"0": 0.01 * 2 / 3, "2": 0.01, "3": 0.01 * 5 / 6, "8": 0.0}
    assert schedule["rates_by_step"] == pytest.approx(rates)
