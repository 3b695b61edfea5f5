"""metrics.jsonl, as steps are recorded."""

from pathlib import Path

import torch

from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedStep
from bertbench.results.metrics import Metrics, StepReport
from bertbench.results.mlperf_log import MlperfLog
from tests.ranks import run_ranks


def test_over_a_slow_link_several_steps_are_written_at_a_time(tmp_path: Path) -> None:
    assert run_ranks(2, lines_after_steps, tmp_path / "metrics.jsonl")[0] == [0, 2, 2, 4, 4, 5]


def lines_after_steps(world: World, path: Path) -> list[int]:
    """Lines in the file after each of five steps, and after a flush."""
    one = torch.ones(())
    counts = []
    with MlperfLog(None) as log, Metrics(path if world.leads else None, world, log, every=2) as metrics:
        for step in range(1, 6):
            metrics.record(step, 12 * step, StepReport(one, one, 0.1, one, None), 1.0, LoadedStep([], 1.0))
            counts.append(lines(path))
        metrics.flush()
        counts.append(lines(path))
    return counts


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
