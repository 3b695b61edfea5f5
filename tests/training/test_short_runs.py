"""`train --smoke` and `--profile`: a few real steps, whose logs can't be mistaken for results."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.log_spans import startup
from bertbench.runs.profiling import PROFILED_STEPS, Profiler
from bertbench.runs.run_progress import RunProgress
from bertbench.runs.step_trace import where
from bertbench.training.build import TrainOptions
from bertbench.training.short_run import shortened
from bertbench.training.train import train
from compliance import judge_log
from tests.compliance.logs import compliance
from tests.conftest import Printed, Tiny
from tests.ranks import run_ranks
from tests.training.test_run import finished, metrics, words

WITHOUT_RESULT = {"not-a-result", "run-success"}


def rules(log: Path) -> set[str]:
    return {breach.rule.id for breach in judge_log(log, "5.0.0").breaches}


def test_a_smoke_run_takes_a_few_steps_of_everything_and_is_not_a_result(tiny_file: str, tmp_path: Path) -> None:
    # evaluations every 36 samples, and a target that this seed reaches at once: else the run would be aborted anyway
    settings = ("evaluation.target=1e-9", "checkpoint.every_steps=1000", "schedule.max_steps=1000")
    command = ["train", tiny_file, "--smoke", "--seed", 5, "--json", *words(settings)]
    done = finished(*command, LOGDIR=str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "smoke test passed: a few steps of everything ran (no result)"
    assert "aborted" not in done.stderr
    outcome = json.loads(done.stdout)
    log = tmp_path / "runs" / "tiny" / "smoke" / "smoke_0.txt"
    assert (outcome["log"], outcome["status"], outcome["not_a_result"]) == (str(log), "aborted", "smoke")
    assert outcome["best_accuracy"] >= 1e-9
    assert len(metrics(log)) == 5
    assert [path.name for path in ResultFiles(log).snapshots.iterdir()] == ["step_3"]
    judgement = judge_log(log, "5.0.0")
    assert judgement.official.verdict == "pass"
    assert judgement.facts is not None
    assert [evaluation.samples for evaluation in judgement.facts.evaluations] == [60]
    started = startup(judgement.facts)
    assert started is not None
    assert list(started["untimed_s"]) == [
        "launcher", "imports", "meeting", "files", "caches", "data", "model", "warm-up", "rest", "waiting",
    ]  # fmt: skip
    assert list(started["timed_s"]) == ["plan", "shards", "first batch", "first step"]
    assert all(0 <= seconds <= started["slowest_s"][piece] for piece, seconds in started["timed_s"].items())

    assert rules(log) == WITHOUT_RESULT
    judged = compliance(str(log))
    assert judged.returncode == 1
    assert b"error not-a-result" in judged.stdout
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "not_a_result" not in line))
    assert rules(log) == {"run-success"}
    assert compliance(str(tmp_path / "runs")).returncode == 2  # a folder's runs are those named as results


REFUSED = {
    "--smoke --result RUNS/result_7.txt": "--smoke makes no result; choose a name other than",
    "--profile": "--profile takes 12 steps, but the system stops after 6; raise schedule.max_steps",
    "--smoke --resume auto": "--smoke takes a few steps of a new run; leave out --resume",
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
    return profiler.write(files.folder) if files else ""


@pytest.mark.parametrize("mode", ["bucket", pytest.param("before", marks=pytest.mark.slow)])
def test_a_profiled_run_leaves_its_trace_and_says_where_a_step_goes(tiny: Tiny, tmp_path: Path, mode: str) -> None:
    log = tmp_path / "profile_0.txt"
    printed, nothing = run_ranks(2, profiled, tiny(f"clip.mode={mode}", "schedule.max_steps=1000"), log)
    assert nothing == ""
    assert len(metrics(log)) == PROFILED_STEPS
    assert rules(log) == WITHOUT_RESULT
    found = json.loads((log.with_suffix("") / "profile.json").read_text())
    parts = found["parts_ms"]
    assert set(parts) == {"data wait", "forward", "backward", "all-reduce", "optimizer", "the rest of the loop"}
    trace = json.loads((log.with_suffix("") / "trace.json").read_text())["traceEvents"]
    steps = [event["dur"] for event in trace if event["name"].startswith("ProfilerStep#")]
    assert len(steps) == found["steps"] == 5
    assert sum(parts.values()) == pytest.approx(sum(steps) / 5e3, rel=1e-3)  # each moment once, and none left out
    assert "the rest of the loop" in printed


def span(name: str, start: float, stop: float, cat: str = "cpu_op", tid: int = 1, link: int = 0) -> dict[str, Any]:
    asked = {"args": {"External id": link}} if link else {}
    return {"ph": "X", "cat": cat, "name": name, "ts": 1000 * start, "dur": 1000 * (stop - start), "tid": tid, **asked}


def ours(name: str, start: float, stop: float) -> dict[str, Any]:
    return span(name, start, stop, "user_annotation")


STEP_OF_20_MS = [
    ours("ProfilerStep#7", 0, 20),
    ours("data wait", 0, 1),
    ours("forward", 1, 8),
    span("aten::addmm", 1, 3, link=11), ours("attention", 3, 6), span("aten::bmm", 4, 5, link=12),
    ours("backward", 8, 13),
    ours("all-reduce", 13, 16),
    ours("optimizer", 16, 18), span("aten::add_", 17, 18, link=15),
    span("gloo:all_reduce", 9, 15, tid=7),
]  # fmt: skip


def test_on_a_cpu_each_moment_of_a_step_is_counted_once() -> None:
    inner = ours("all-reduce", 16, 17)  # within the optimizer's phase, as that of a norm
    assert where([*STEP_OF_20_MS, inner]) == {
        "data wait": 1.0,
        "forward": 7.0,
        "backward": 5.0,
        "all-reduce": 3.0,
        "optimizer": 2.0,
        "the rest of the loop": 2.0,
    }


def test_in_a_pipeline_time_outside_of_passes_is_waiting_for_other_stages() -> None:
    pipeline = ours("wait for other stages", 1, 13)
    last_pass_ends_early = [event for event in STEP_OF_20_MS if event["name"] != "backward"] + [ours("backward", 9, 12)]
    parts = where([*last_pass_ends_early, pipeline])
    assert (parts["forward"], parts["backward"], parts["wait for other stages"]) == (7.0, 3.0, 2.0)
    assert sum(parts.values()) == 20


def test_on_a_gpu_sums_count_only_where_nothing_else_runs() -> None:
    autograd = [span("autograd::engine::evaluate_function: MmBackward0", 9, 12, tid=2, link=14)]
    kernels = [
        span("nvjet_tst_128x64", 2, 4, "kernel", 70, link=11),
        span("flash_fwd_kernel", 4, 7, "kernel", 70, link=12),
        span("sm90_xmma_gemm_bf16", 9, 13, "kernel", 70, link=14),
        span("ncclDevKernel_AllReduce_Sum_f32", 10, 15, "kernel", 71),
        span("multi_tensor_apply", 17, 19, "kernel", 70, link=15),
    ]
    assert where([*STEP_OF_20_MS, *autograd, *kernels]) == {
        "data wait": 1.0,
        "forward": 5.0,
        "backward": 4.0,
        "all-reduce": 2.0,  # of its 5, those after 13
        "optimizer": 2.0,
        "the GPU waits for the host": 6.0,  # 1 to 2, 7 to 9, 15 to 17, 19 to 20
    }


def test_a_log_counts_the_samples_of_each_stratum_that_quotas_drew(tiny_file: str, tmp_path: Path) -> None:
    log = tmp_path / "smoke_7.txt"
    settings = (
        "data.balance=stratified_presort", "data.strata_edges=[28,29]", "data.strata_quotas=[5,1]",
        "schedule.warmup_steps=3", "schedule.start_warmup_step=-1", "schedule.max_steps=9",
        "schedule.decay_from=warmup_steps", "schedule.first_step=1",
    )  # fmt: skip
    finished("train", tiny_file, "--smoke", "--seed", 5, "--result", log, *words(settings))
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
