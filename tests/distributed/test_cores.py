"""The number of threads of ranks whose time a control group limits: version 1, version 2, and a real group."""

import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from bertbench.distributed import cores as affinity
from bertbench.distributed.cores import available_cores, quota_cores, threads_on, threads_per_rank
from tests.quota import processor_quota
from tests.ranks import CONTEXT

MOUNT = "36 25 0:31 {root} {point} rw,nosuid shared:9 - {kind} {kind} rw,{options}"


def process(folder: Path, groups: str, *mounts: str) -> Path:
    """Write what /proc shows about a process in these groups."""
    (folder / "proc").mkdir()
    (folder / "proc" / "cgroup").write_text(groups + "\n")
    (folder / "proc" / "mountinfo").write_text("\n".join(["22 1 8:1 / / rw - ext4 /dev/root rw", *mounts]) + "\n")
    return folder / "proc"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def test_version_2_gives_the_lowest_limit_of_a_group_and_its_parents(tmp_path: Path) -> None:
    top = tmp_path / "cgroup of all"
    mount = MOUNT.format(root="/", point=str(top).replace(" ", r"\040"), kind="cgroup2", options="nsdelegate")
    known = process(tmp_path, "0::/pods/mine", mount)
    assert quota_cores(known) is None
    write(top / "pods" / "mine" / "cpu.max", "max 100000")
    assert quota_cores(known) is None
    write(top / "pods" / "mine" / "cpu.max", "700000 100000")
    assert quota_cores(known) == 7
    write(top / "pods" / "cpu.max", "250000 100000")
    assert quota_cores(known) == 2.5


@pytest.mark.parametrize("root", ["/", "/docker/7f"])
def test_version_1_gives_the_limit_in_and_out_of_a_container(root: str, tmp_path: Path) -> None:
    """A container sees its own group in place of the top one, and its path on the machine."""
    top = tmp_path / "cpu,cpuacct"
    cpu = MOUNT.format(root=root, point=top, kind="cgroup", options="cpu,cpuacct")
    memory = MOUNT.format(root=root, point=tmp_path / "memory", kind="cgroup", options="memory")
    known = process(tmp_path, "7:memory:/docker/7f\n4:cpu,cpuacct:/docker/7f\n0::/", memory, cpu)
    group = top / "docker" / "7f" if root == "/" else top
    write(group / "cpu.cfs_quota_us", "-1")
    write(group / "cpu.cfs_period_us", "50000")
    assert quota_cores(known) is None
    write(group / "cpu.cfs_quota_us", "75000")
    assert quota_cores(known) == 1.5


def test_a_system_other_than_linux_has_no_quota(tmp_path: Path) -> None:
    assert quota_cores(tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "available", "of_3_ranks", "with_5_cores"),
    [(None, 11, 3, 5), (7.9, 7, 2, 2), (0.5, 1, 1, 1), (40.0, 11, 3, 5)],
)
def test_threads_follow_the_smaller_of_cores_and_quota(
    quota: float | None, available: int, of_3_ranks: int, with_5_cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affinity, "allowed_cores", lambda: 11)
    monkeypatch.setattr(affinity, "quota_cores", lambda: quota)
    assert (available_cores(), threads_per_rank(3), threads_on(5, 3)) == (available, of_3_ranks, with_5_cores)


def test_a_process_in_a_group_with_a_quota_knows_it() -> None:
    with processor_quota(1.5) as group:
        receiver, sender = CONTEXT.Pipe(duplex=False)
        asking = CONTEXT.Process(target=ask, args=(group, sender))
        asking.start()
        assert receiver.recv() == (1.5, 1)
        asking.join()


def ask(group: Path, sender: Connection) -> None:
    group.write_text(str(os.getpid()))
    sender.send((quota_cores(), available_cores()))
