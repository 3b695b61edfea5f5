"""A run whose ranks share the model, started by the command line and judged like any other."""

import json
from pathlib import Path

import pytest

from compliance import judge_log
from tests.whole_runs import finished, words

ONE_BY_TWO_BY_TWO = (
    "launch.ranks_per_node=4", "model.feed_forward_size=22", "parallel.tensor=2", "parallel.pipeline=2",
    "parallel.microbatches=3", "evaluation.target=0.01", "schedule.max_steps=400",
)  # fmt: skip


@pytest.mark.slow
def test_four_ranks_that_share_the_model_reach_the_target_and_write_a_sound_log(tiny_file: str, tmp_path: Path) -> None:
    done = finished("train", tiny_file, "--json", *words(ONE_BY_TWO_BY_TWO), LOGDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "success"
    verdict = judge_log(Path(outcome["log"]), "5.0.0")
    assert (verdict.verdict, verdict.breaches) == ("pass", ())
