"""gpu_check.sh where there is no GPU: it ends, names what it skips, and its exit code counts failures."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bertbench.distributed.world import World
from bertbench.model.shape import BertShape
from lab.bench.gpu import graphs, ranks, training
from lab.bench.gpu.page import check_page
from lab.bench.gpu.parts import PARTS, Part
from lab.bench.gpu.stand import Stand, stand
from lab.bench.gpu.text import learnable
from lab.bench.gpu_check import run_part, summary
from tests.ranks import run_ranks
from tests.training.test_graphs import AsOnAGpu

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "bert" / "gpu_check.sh"
without_a_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "--out", folder, *words],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@without_a_gpu
def test_without_a_gpu_parts_that_need_one_are_skipped_by_name(tmp_path: Path) -> None:
    done = check(tmp_path, "--only", "tests,contexts,step,overlap")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "gpu_check.json").read_text())
    assert [(part["name"], part["status"]) for part in report["parts"]] == [
        ("tests", "skipped"), ("contexts", "skipped"), ("step", "skipped"), ("overlap", "skipped")
    ]  # fmt: skip
    assert report["overlap"] == "skipped: needs 2 GPUs or more"
    assert "gpu_check: step: skipped needs a GPU" in done.stderr
    assert "overlap" in (tmp_path / "gpu_check.html").read_text()


@pytest.mark.slow
@without_a_gpu
def test_without_a_gpu_the_whole_check_runs_to_its_end(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr
    ended = {part["name"]: part["status"] for part in json.loads(done.stdout)["parts"]}
    assert {name for name, status in ended.items() if status == "passed"} == {"nccl", "trainer", "convergence"}
    assert "failed" not in ended.values()


def test_all_parts_fit_into_the_time_of_one_go() -> None:
    most_likely_alone = sum(part.limit_s for part in PARTS if part.gpus < 2)
    assert most_likely_alone <= 25 * 60


def test_an_unknown_part_is_one_clear_error(tmp_path: Path) -> None:
    done = check(tmp_path, "--only", "tests,stpe")
    assert done.returncode == 2
    assert "unknown part stpe; choose of tests, contexts" in done.stderr


@pytest.mark.parametrize(("command", "seconds", "reason"), [
    (("bertbench", "nothing"), 60, "ended with 2"),
    (("timeit", "-n", "1", "-s", "import time", "time.sleep(60)"), 1, "exceeded its 1 s"),
])  # fmt: skip
def test_a_part_that_breaks_or_takes_too_long_fails(command: tuple[str, ...], seconds: int, reason: str) -> None:
    outcome, found = run_part(Part("made up", "", seconds, command=command), gpus=0, seconds_left=100)
    assert outcome.status == "failed"
    assert reason in outcome.reason
    assert found["error"] == outcome.reason


def test_a_part_without_time_is_skipped() -> None:
    outcome, _ = run_part(PARTS[2], gpus=0, seconds_left=0)
    assert (outcome.status, outcome.reason[:12]) == ("skipped", "no time left")


def test_every_trainer_that_a_cpu_can_have_agrees_with_the_plain_one() -> None:
    wanted, missing = training.choices(stand())
    assert training.Choice("lamb", "triton").name in missing or torch.cuda.is_available()
    for took in run_ranks(1, take_all, stand()._replace(device="cpu"), wanted):
        by_name = {one.choice: one.losses for one in took}
        assert by_name[training.Choice("lamb", sharded=True).name] == pytest.approx(
            by_name[training.Choice().name], abs=1e-3
        )
        assert by_name[training.Choice("adam").name] != pytest.approx(by_name[training.Choice().name], abs=1e-4)


def take_all(world: World, here: Stand, wanted: list[training.Choice]) -> list[training.Took]:
    return [training.take(world, here, choice, 4) for choice in wanted if choice.impl == "torch"]


def test_every_size_of_batch_is_timed_replayed_and_not() -> None:
    (found,) = run_ranks(1, time_sizes, stand()._replace(device="cpu"))
    sizes = len(training.bins_for(stand()).all)
    assert [row["mode"] for row in found["sizes"]] == ["default"] * sizes + ["graphs"] * sizes
    assert [one["recompiled"] for one in found["trainers"]] == [0, 0]


def time_sizes(world: World, here: Stand) -> dict[str, Any]:
    with AsOnAGpu():
        return graphs.time_bins(world, here)


def test_collectives_that_leave_wrong_numbers_are_found() -> None:
    (rows,) = run_ranks(1, collectives)
    assert [row.right for row in rows] == [True] * 6
    (rows,) = run_ranks(1, collectives_whose_sum_is_wrong)
    assert [row.name for row in rows if not row.right] == ["all-reduce, float32", "all-reduce, bfloat16"]


def collectives(world: World) -> list[ranks.Collective]:
    return ranks.on_rank(world, megabytes=1)


def collectives_whose_sum_is_wrong(world: World) -> list[ranks.Collective]:
    right = ranks.Exchange.sum
    ranks.Exchange.sum = lambda self, buffer: right(self, buffer.add_(1))
    return ranks.on_rank(world, megabytes=1)


def test_a_masked_token_follows_from_its_neighbour() -> None:
    content = learnable(BertShape(97, 8, 1, 1, 8, max_positions=40), samples=7, seed=3)
    assert content.lengths.tolist() == sorted(content.lengths.tolist(), reverse=True)
    masked = content.masked.cumsum() - content.masked
    at, label = content.masked_lm_positions[masked[0] + 1], content.masked_lm_ids[masked[0] + 1]
    assert content.input_ids[at] == 3
    assert content.input_ids[at + 1] - 5 == 2 * (label - 5) % 61


def test_a_run_that_learns_nothing_or_ends_elsewhere_fails_convergence() -> None:
    def ended(first: float, last: float) -> training.Took:
        return training.Took("any", 1, [first] * 10 + [last] * 20, 1.0, 1.0)

    assert training.compared(ended(6.0, 4.0), ended(6.0, 4.1)).passed
    assert not training.compared(ended(6.0, 4.0), ended(6.0, 4.3)).passed
    assert not training.compared(ended(6.0, 5.5), ended(6.0, 5.5)).passed


def test_the_page_shows_every_part_and_escapes_what_parts_say() -> None:
    report = {
        "machine": {"gpus": [], "torch": "2", "cuda": None, "python": "3"},
        "passed": False,
        "parts": [
            {"name": "nccl", "shows": "sums", "status": "passed", "seconds": 1.0, "reason": ""},
            {"name": "step", "shows": "speed", "status": "failed", "seconds": 2.0, "reason": "<b>"},
        ],
        "nccl": [{"name": "all-reduce", "right": True, "milliseconds": 1.5}],
        "step": {"error": "<b>", "last_lines": []},
    }
    page = check_page(report)
    assert "At least one part failed." in page
    assert "all-reduce" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_a_report_is_counted_and_failures_are_named() -> None:
    report = """<testsuites><testsuite>
      <testcase name="a"><properties><property name="context" value="0.1"/></properties></testcase>
      <testcase name="b"><skipped message="no torchao"/></testcase>
      <testcase name="c"><failure message="AssertionError: 3 != 4&#10;more">...</failure></testcase>
      <testcase name="d"><error message="fixture broke"/></testcase>
    </testsuite></testsuites>"""
    assert summary(report) == {
        "passed": 1, "failed": 2, "skipped": 1, "failures": {"c": "AssertionError: 3 != 4", "d": "fixture broke"},
        "measured": {"a": {"context": "0.1"}},
    }  # fmt: skip
