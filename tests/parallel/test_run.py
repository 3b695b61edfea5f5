"""A run whose ranks share the model, through the command line, judged as any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compliance.judge import judge

ONE_BY_TWO_BY_TWO = (
    "launch.ranks_per_node=4", "model.feed_forward_size=22", "parallel.tensor=2", "parallel.pipeline=2",
    "parallel.microbatches=3", "evaluation.target=0.01", "schedule.max_steps=400",
)  # fmt: skip


@pytest.mark.slow
def test_four_ranks_that_share_the_model_reach_the_target_and_leave_a_sound_log(tiny_file: str, tmp_path: Path) -> None:
    overrides = [word for setting in ONE_BY_TWO_BY_TWO for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "bertbench", "train", tiny_file, "--json", *overrides],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "LOGDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "success"
    verdict = judge(Path(outcome["log"]), "5.0.0")
    assert (verdict.verdict, verdict.findings) == ("pass", ())
