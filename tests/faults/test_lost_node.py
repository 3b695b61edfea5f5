"""Two hosts in separate network namespaces, whose connection is cut while they train."""

import subprocess
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from lab.bench import network
from tests.conftest import Tiny
from tests.faults.ended import as_launched, ended
from tests.ranks import CONTEXT
from tests.whole_runs import wait_for_steps

SILENT_S = 4


def on_its_host(rank: int, ends: tuple[Connection, Connection], folder: Path, system: System, log: Path) -> None:
    network.become_host(rank, ends)
    as_launched({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, folder / f"said_{rank}", system, log, unharmed, {})


def unharmed(world: World) -> None:
    pass


@pytest.mark.faults
@pytest.mark.skipif(bool(network.network_obstacle()), reason=str(network.network_obstacle()))
def test_a_node_that_loses_its_network_is_named_by_the_others(tiny: Tiny, tmp_path: Path) -> None:
    system = tiny("schedule.max_steps=100000", "evaluation.interval_samples=600000",
                  f"launch.stall_timeout_s={SILENT_S}")  # fmt: skip
    log, ends = tmp_path / "result_0.txt", CONTEXT.Pipe()
    processes = [CONTEXT.Process(target=on_its_host, args=(rank, ends, tmp_path, system, log)) for rank in (0, 1)]
    for process in processes:
        process.start()
    wait_for_steps(log, 6)
    cut = f"nsenter --net=/proc/{processes[1].pid}/ns/net ip link set {network.DEVICE} down"
    subprocess.run(cut.split(), check=True)  # what is sent to that host stays unanswered
    on_first = ended(processes, tmp_path / "said_0", log)
    assert on_first.codes == [1, 1]
    message = on_first.message()
    assert message.startswith("rank 1 of 2 on ")
    assert f"no sign of life for {SILENT_S} s; stopped, or lost with its node or network" in message
    on_second = [line for line in (tmp_path / "said_1").read_text().splitlines() if line.startswith("bertbench: ")]
    assert len(on_second) == 1
    assert f"rank 0 of 2: no sign of life of it or its store for {SILENT_S} s" in on_second[0]
