import os
import socket
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore
from torch.distributed.distributed_c10d import PrefixStore

from bertbench.common.errors import BertbenchError, ConfigError, RunError
from bertbench.distributed.cores import by_physical_core, core_list, own_cores
from bertbench.distributed.device import take_device
from bertbench.distributed.failure import FailureReport
from bertbench.distributed.loopback import loopback_address
from bertbench.distributed.network_errors import lost_contact, naming_network_variables
from bertbench.distributed.ranks import Ranks
from bertbench.distributed.rendezvous import leave_log, log_left, meet
from bertbench.distributed.world import join
from lab.spawn import environments_of
from tests.ranks import answers_of, run_command


def try_to_join() -> str:
    try:
        with join("cpu", timeout_s=3):
            return "joined"
    except BertbenchError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    ("size", "came", "settings_of_last", "expected"),
    [
        (5, (0, 2, 3), {}, "ranks 1, 4 of 5"),
        (3, (0, 1, 1), {}, "rank 1 of 3"),
        (2, (0, 1), {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}, "ranks"),
        (2, (1,), {}, "127.0.0.1"),
    ],
)
def test_ranks_that_can_t_meet_are_one_error_on_each_and_no_hang(
    size: int, came: tuple[int, ...], settings_of_last: dict[str, str], expected: str
) -> None:
    """The last of these ranks has environment variables of its own, as if started by another launch."""
    began, environments = time.monotonic(), environments_of(size)
    *others, last = (environments[rank] for rank in came)
    answers = answers_of([*others, last | settings_of_last], try_to_join)
    assert time.monotonic() - began < 30  # not a hang, on a busy machine too
    for failed, text in answers:
        assert not failed, text
        assert expected in text


def test_without_an_address_the_error_says_what_to_set() -> None:
    _, second = environments_of(2)
    del second["MASTER_ADDR"]
    ((_, lost),) = answers_of([second], try_to_join)
    assert "MASTER_ADDR" in lost


def test_a_process_that_is_no_rank_doesn_t_wait_for_others() -> None:
    elsewhere = {"MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "1"}
    for left in ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, {"RANK": "0", "WORLD_SIZE": "1"}):
        assert answers_of([elsewhere | left], try_to_join) == [(False, "joined")]


@pytest.mark.parametrize("address", ["[::1]", "Localhost", " 127.0.0.1 "])
def test_ranks_meet_on_each_name_of_loopback(address: str) -> None:
    if ":" in (loopback_address(address) or "") and not has_ipv6():
        pytest.skip("this machine has no ::1")
    given = [environment | {"MASTER_ADDR": address} for environment in environments_of(2)]
    assert answers_of(given, sum_by_shared_memory) == [(False, (3.0, True))] * 2


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def sum_by_shared_memory() -> tuple[float, bool]:
    with join("cpu", timeout_s=20) as world:
        return world.sum(torch.tensor(world.rank + 1.0)).item(), world.shared is not None


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0:0:0:0:0:0:0:1", "::1"), ("::1%lo", "::1"), ("::ffff:127.0.0.1", "127.0.0.1"), ("127.8.9.10", "127.8.9.10"),
        ("192.0.2.1", None), ("node7", None), ("localhost.example.org", None), ("fe80::1%eth0", None),
    ],
)  # fmt: skip
def test_only_loopback_keeps_other_machines_out(host: str, address: str | None) -> None:
    assert loopback_address(host) == address


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("MASTER_PORT", port) for port in ("abc", "0", "65536")),
        *(("MASTER_ADDR", address) for address in ("tcp://node7", "127.0.0.1:29500", "node 7")),
    ],
)
def test_an_address_that_can_t_be_right_is_refused_at_once(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, text in {**environments_of(2)[1], name: value}.items():
        monkeypatch.setenv(key, text)
    with pytest.raises(ConfigError, match=f"^{name} is '{value}'"):
        meet(Ranks(1, 2, 1, 2), timeout_s=300)


def test_on_one_machine_loopback_is_used_if_a_named_interface_is_missing(tmp_path: Path, tiny_file: str) -> None:
    done = run_command(2, ["train", tiny_file, "--smoke"], tmp_path, GLOO_SOCKET_IFNAME="nosuch0")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("GLOO_SOCKET_IFNAME is 'nosuch0'") == 1


@pytest.mark.parametrize(("name", "value"), [("GLOO_SOCKET_IFNAME", "lo,nosuch0"), ("GLOO_DEVICE_TRANSPORT", "PIGEON")])
def test_a_setting_that_gloo_can_t_honour_is_named(name: str, value: str) -> None:
    alone = environments_of(2)[0] | {"MASTER_ADDR": socket.gethostname(), name: value}
    ((failed, text),) = answers_of([alone], try_to_join)
    assert not failed, text
    assert text.startswith(f"ConfigError: {name} is {value!r}")


def test_an_nccl_error_names_the_network_settings() -> None:
    error = RuntimeError(
        "NCCL error in: here.cpp:94, internal error\nLast error:\nBootstrap : no socket interface found\n"
    )
    named = pytest.raises(RunError, match="NCCL_SOCKET_IFNAME=ib7")
    with named, naming_network_variables("nccl", ["NCCL_SOCKET_IFNAME=ib7"]):
        raise error


def test_an_nccl_error_is_unchanged_if_no_network_setting_is_set() -> None:
    with pytest.raises(RuntimeError, match="NCCL error in"), naming_network_variables("nccl", []):
        raise RuntimeError("NCCL error in: here.cpp:94, internal error")


def test_ranks_share_the_cores_that_they_are_near() -> None:
    near_0, near_1 = list(range(5)), [8, 9]
    nearby = [near_0, near_0, near_1, near_0]
    assert [own_cores(rank, nearby) for rank in range(4)] == [[0], [1, 2], [8, 9], [3, 4]]
    assert own_cores(1, [[7], [7]]) == [7]  # fewer cores than ranks
    assert core_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert core_list("\n") == set()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binds cores on Linux only")
def test_bound_ranks_of_a_node_use_separate_cores() -> None:
    answers = answers_of(environments_of(2), cores_when_bound)
    available = sorted(os.sched_getaffinity(0))
    assert not any(failed for failed, _ in answers), answers
    first, second = (set(cores) for _, cores in answers)
    assert first | second == set(available)
    assert len(available) < 2 or not first & second


def cores_when_bound() -> list[int]:
    """The cores of every thread of a bound rank: one that was there before, and those of its process group."""
    stop = threading.Event()
    earlier = threading.Thread(target=stop.wait)
    earlier.start()
    with join("cpu", timeout_s=20, bind_cores=True) as world:
        world.barrier()
        cores = {tuple(sorted(os.sched_getaffinity(int(task.name)))) for task in Path("/proc/self/task").iterdir()}
    stop.set()
    (of_all_threads,) = cores
    return list(of_all_threads)


def test_cores_of_a_dgx_are_assigned_by_physical_core() -> None:
    # AMD EPYC 7742 twice: 128 cores, whose second threads are numbers 128 to 255
    siblings = {core: {core % 128, core % 128 + 128} for core in range(256)}
    near = by_physical_core(range(256), siblings.__getitem__)
    first, second = (own_cores(rank, [near, near]) for rank in range(2))
    assert set(first) == {*range(64), *range(128, 192)}
    assert {core % 128 for core in first}.isdisjoint({core % 128 for core in second})
    assert by_physical_core([3, 1, 2], lambda _: set()) == [1, 2, 3]


class Devices:
    """Record which GPU is requested, on a machine without one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.current: list[object] = []
        self.allocator: list[str] = []
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", self.current.append)
        # torch's own door to the allocator, which has no public name yet
        monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", self.allocator.append)
        names = ("CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NCCL_GRAPH_REGISTER")
        for name in names:
            monkeypatch.setenv(name, "")  # so that the variable is restored, too, if it isn't set
            monkeypatch.delenv(name)


def test_a_rank_takes_its_gpu_or_the_only_one_that_its_launcher_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices(monkeypatch, count=8)
    assert take_device("cuda", 5) == torch.device("cuda", 5)
    alone = Devices(monkeypatch, count=1)
    with pytest.raises(RunError, match="GPU 5"):
        take_device("cuda", 5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")  # as srun --gpus-per-task=1 does
    assert take_device("cuda", 5) == torch.device("cuda", 0)
    assert (devices.current, alone.current) == ([5], [0])
    assert devices.allocator == ["expandable_segments:True"]


def test_the_allocator_is_left_as_the_user_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices(monkeypatch, count=8)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    take_device("cuda", 0)
    assert devices.allocator == []
    assert "NCCL_GRAPH_REGISTER" not in os.environ


@pytest.mark.parametrize(("allocator", "chosen", "expected"), [
    (None, None, "0"), ("expandable_segments:True", None, "0"), (None, "1", "1"),
])  # fmt: skip
def test_nccl_does_not_register_buffers_in_expandable_segments_unless_the_user_wants_it(
    allocator: str | None, chosen: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Devices(monkeypatch, count=8)
    if allocator is not None:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", allocator)
    if chosen is not None:
        monkeypatch.setenv("NCCL_GRAPH_REGISTER", chosen)
    take_device("cuda", 0)
    assert os.environ["NCCL_GRAPH_REGISTER"] == expected


@pytest.mark.parametrize(
    "text",
    ["ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
     "[1]: Connection closed by peer"],
)  # fmt: skip
def test_an_error_after_a_lost_peer_is_recognised(text: str) -> None:
    assert lost_contact(RuntimeError(text))
    assert not lost_contact(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize("path", ["/runs/l\udcff\udce9g/result_0.txt", "/runs/é/result_0.txt"])
def test_any_path_of_a_log_passes_through_the_store(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    store = PrefixStore("attempt 1", HashStore())
    leave_log(store, Path(path))
    assert log_left(store) == Path(path)


def test_a_cause_that_quotes_such_a_path_is_recorded() -> None:
    failure = FailureReport(HashStore(), Ranks(0, 1, 0, 1))
    failure.claim("l\udcff: no space left")
    assert failure.reported() == "l\\udcff: no space left"
