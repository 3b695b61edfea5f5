"""Runs by a technique resume from a snapshot to the last bit, or say that they can't."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertbench.checkpoint.resumption import Resumption
from bertbench.common.errors import ConfigError
from bertbench.training.technique import EVERY_STEP, Technique, check_resumed
from lab.techniques.delayed import Delayed
from lab.techniques.diloco import DiLoCo
from lab.techniques.int8 import Int8
from lab.techniques.local_sgd import LocalSgd
from lab.techniques.powersgd import PowerSgd
from lab.techniques.topk import TopK
from tests.checkpoint.whole_and_resumed import DROPOUT, EVERY, TAKEN, whole_and_resumed
from tests.conftest import Tiny
from tests.ranks import run_command, run_ranks

SMALL, BUCKETWISE = "communication.bucket_mb=0.01", "clip.mode=bucket"
RUNS: dict[str, list[tuple[Technique, tuple[str, ...]]]] = {
    "the errors of compression": [(Int8(), (SMALL,)), (TopK(), (SMALL,))],
    "ranks that train alone": [  # step 4 lies between outer steps: the ranks' weights differ
        (LocalSgd(every_steps=3), ()),
        (DiLoCo(every_steps=3), ()),
        (DiLoCo(every_steps=2), ("optimizer.name=lamb",)),
    ],
    "gradients under way": [
        (Delayed(), (BUCKETWISE,)),
        (Delayed(steps=3, compression="bf16"), (BUCKETWISE, SMALL)),
        (Delayed(steps=6), (BUCKETWISE,)),  # at step 4 no update was taken yet
    ],
}


@pytest.mark.parametrize("name", RUNS)
def test_resuming_is_exact(tiny: Tiny, tmp_path: Path, name: str) -> None:
    systems = [tiny(DROPOUT, EVERY, *settings) for _, settings in RUNS[name]]
    techniques = [technique for technique, _ in RUNS[name]]
    for pairs in run_ranks(2, whole_and_resumed, systems, tmp_path, techniques):
        for (losses, weights), (losses_on, weights_on) in pairs:
            assert losses_on == losses[TAKEN:]
            assert weights_on == weights


@pytest.mark.slow  # three runs of two ranks; the tests below ask the same of functions
def test_a_run_resumes_by_its_command_and_by_no_other(tiny_file: str, tmp_path: Path) -> None:
    log = tmp_path / "result_0.txt"
    metrics = log.with_suffix("") / "metrics.jsonl"
    words = [tiny_file, "--seed", "5", "--set", "checkpoint.every_steps=2"]
    technique = ["--technique", "local_sgd", "every_steps=3"]

    def losses() -> list[float]:
        return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]

    whole = run_command(2, ["lab", "train", *words, "--result", str(log), *technique], tmp_path)
    assert whole.returncode == 3, whole.stderr
    at_once = losses()
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"run_stop"' not in line))  # as if it had been killed
    resume = ["--resume", str(log.with_suffix("") / "snapshots" / f"step_{TAKEN}")]
    refused = run_command(2, ["train", *words, *resume], tmp_path)
    assert refused.returncode == 2
    assert "began with --technique local_sgd every_steps=3, found --technique every_step; resume" in refused.stderr
    resumed = run_command(2, ["lab", "train", *words, *resume, *technique], tmp_path)
    assert resumed.returncode == 3, resumed.stderr
    assert losses() == at_once


def test_powersgd_says_that_its_runs_have_no_snapshots(tiny: Tiny) -> None:
    PowerSgd().check(tiny())
    with pytest.raises(ConfigError, match=r"checkpoint\.every_steps 2 asks for snapshots, which don't hold the errors"):
        PowerSgd().check(tiny("checkpoint.every_steps=2"))
    assert not PowerSgd.takes_snapshots, "a stopped run takes none either"


def begun_by(technique: Technique, ranks: int = 2) -> Resumption:
    record = technique.record()
    meta: Any = SimpleNamespace(config={"technique": record} if record else {}, ranks=ranks)
    return Resumption(Path("result_0.txt"), Path("step_4"), meta)


def test_a_run_resumes_only_by_the_technique_that_it_began_with(tiny: Tiny) -> None:
    system = tiny()
    check_resumed(begun_by(EVERY_STEP), EVERY_STEP, system)
    check_resumed(begun_by(DiLoCo(every_steps=4)), DiLoCo(every_steps=4), system)
    with pytest.raises(ConfigError, match=r"began with --technique int8, found --technique every_step; resume with"):
        check_resumed(begun_by(Int8()), EVERY_STEP, system)
    with pytest.raises(ConfigError, match=r"began with --technique every_step, found --technique topk share=0.01"):
        check_resumed(begun_by(EVERY_STEP), TopK(), system)
    with pytest.raises(ConfigError, match=r"local_sgd every_steps=4, found --technique local_sgd every_steps=5"):
        check_resumed(begun_by(LocalSgd(every_steps=4)), LocalSgd(every_steps=5), system)


def test_if_ranks_have_a_state_of_their_own_the_same_number_must_resume(tiny: Tiny) -> None:
    three = tiny("launch.ranks_per_node=3")
    for technique in (Int8(), TopK(), LocalSgd(), DiLoCo()):
        with pytest.raises(ConfigError, match=r"began on 2 ranks, found 3; technique .* resume with 2 ranks"):
            check_resumed(begun_by(technique), technique, three)
    for technique in (EVERY_STEP, Delayed()):
        check_resumed(begun_by(technique), technique, three)
