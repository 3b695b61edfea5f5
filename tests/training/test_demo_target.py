"""The demo, at its own size, still reaches its target with each way to clip, communicate and shard. Minutes each."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.training.test_run import BERTBENCH, words

LIMIT_S = 1800

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DATADIR with the demo's data in it."""
    folder = tmp_path_factory.mktemp("demo")
    environment = {**os.environ, "DATADIR": str(folder)}
    subprocess.run([*BERTBENCH, "data", "prepare", "--system", "cpu_demo"], env=environment, check=True)
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        ["clip.mode=before", "clip.max_norm=0.5"],
        ["clip.mode=bucket", "clip.max_norm=0.5", "communication.bucket_mb=0.25"],
        ["communication.compression=fp16"],
        ["communication.compression=bf16", "clip.mode=bucket", "clip.max_norm=0.5"],
        ["communication.compression=powersgd"],
        ["communication.bucket_mb=0.25"],
        ["precision.compute=fp16"],
        ["optimizer.sharded=true"],
    ],
    ids=" ".join,
)
def test_the_demo_reaches_its_target(demo_data: Path, tmp_path: Path, settings: list[str]) -> None:
    environment = {**os.environ, "DATADIR": str(demo_data), "LOGDIR": str(tmp_path)}
    command = [*BERTBENCH, "train", "cpu_demo", "--seed", "1", "--json", *words(settings)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] >= 0.4


def test_the_demo_reaches_its_target_on_two_nodes_of_two_ranks(demo_data: Path, tmp_path: Path) -> None:
    """Nodes in name only: four processes that are told so, as torchrun would tell them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    settings = ["hardware.number_of_nodes=2", "communication.hierarchical=true", "launch.timeout_s=300"]
    result = ["--result", str(tmp_path / "result_0.txt")]
    command = [*BERTBENCH, "train", "cpu_demo", "--seed", "1", *result, *words(settings)]
    ranks = []
    for rank in range(4):
        place = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, "DATADIR": str(demo_data), **place, **meeting}
        ranks.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        said = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * 4, said
