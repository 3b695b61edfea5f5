"""The demo, at full size, still reaches its target with each way to clip, communicate and shard. Each takes minutes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab.spawn import environments_of
from tests.whole_runs import BERTBENCH, finished, words

LIMIT_S = 1800

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DATADIR with the demo's data in it."""
    folder = tmp_path_factory.mktemp("demo")
    assert finished("data", "prepare", "--system", "cpu_demo", DATADIR=str(folder)).returncode == 0
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        ["clip.mode=before", "clip.max_norm=0.5"],
        ["clip.mode=bucket", "clip.max_norm=0.5", "communication.bucket_mb=0.25"],
        ["communication.compression=fp16"],
        ["communication.compression=bf16", "clip.mode=bucket", "clip.max_norm=0.5"],
        ["communication.bucket_mb=0.25"],
        ["precision.compute=fp16"],
    ],
    ids=" ".join,
)
def test_the_demo_reaches_its_target(demo_data: Path, tmp_path: Path, settings: list[str]) -> None:
    folders = {"DATADIR": str(demo_data), "LOGDIR": str(tmp_path)}
    done = finished("train", "cpu_demo", "--seed", "1", "--json", *words(settings), **folders)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best_accuracy"] >= 0.4


def test_the_demo_reaches_its_target_on_two_nodes_of_two_ranks(demo_data: Path, tmp_path: Path) -> None:
    """Nodes in name only: four processes with the variables that torchrun would give them."""
    settings = ["hardware.number_of_nodes=2", "launch.timeout_s=300"]
    result = ["--result", str(tmp_path / "result_0.txt")]
    command = [*BERTBENCH, "train", "cpu_demo", "--seed", "1", *result, *words(settings)]
    ranks = []
    for rank, place in enumerate(environments_of(4)):
        on_node = {"LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, "DATADIR": str(demo_data), **place, **on_node}
        ranks.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        said = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * 4, said
