"""The parts that `build_run` gives the timed loop follow one system: the one with the chosen arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest

pytest.importorskip("pydantic", reason="loads systems")

from bertbench.distributed.startup import Startup
from bertbench.loading.inputs import open_data
from bertbench.machine.choose_arithmetic import Arithmetic
from bertbench.runs.files import ResultFiles
from bertbench.runs.mlperf_log import MlperfLog
from bertbench.training.build import TrainOptions, build_run
from tests.ranks import run_ranks

if TYPE_CHECKING:
    from pathlib import Path

    from bertbench.config import System
    from bertbench.distributed.world import World
    from bertbench.model.options import PrecisionName
    from tests.conftest import Tiny


def tokens_of_a_batch(world: World, system: System, precision: PrecisionName, log: Path) -> tuple[int, int]:
    """Return the tokens of the first training batch that `build_run`'s loader gives, and those of its samples alone."""
    chosen = Arithmetic(precision, (), "as the test says")
    with (
        mock.patch("bertbench.training.build.choose_arithmetic", return_value=chosen),
        mock.patch("bertbench.training.build.check_fast_paths", side_effect=lambda _, __, arithmetic: arithmetic),
        MlperfLog(None) as silent,
    ):
        files = ResultFiles(log)
        files.folder.mkdir()
        built = build_run(system, world, 11, files, TrainOptions(), Startup(), silent)
    (loaded,) = next(built.loader.steps(range(1))).parts
    samples = open_data(system)[0].lengths(loaded.part.ids).sum()
    built.snapshots.close()
    built.trainer.close()
    return len(loaded.batch.tokens_T), int(samples)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_loader_fills_batches_if_the_chosen_format_needs_it(
    tiny: Tiny, tmp_path: Path, precision: PrecisionName
) -> None:
    system = tiny("precision.compute=auto", "launch.ranks_per_node=1")
    ((tokens, of_samples),) = run_ranks(1, tokens_of_a_batch, system, precision, tmp_path / "result_0.txt")
    if precision == "fp32":  # a model this narrow computes it by kernels that take any number of tokens
        assert tokens == of_samples
    else:  # oneDNN builds a kernel for each number
        assert tokens > of_samples
        assert tokens % 16 == 0
