"""Kills for lack of memory, as control groups and the machine count them, in trees like the kernel's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bertbench.machine.oom import oom_kills

V2 = "low 0\nhigh 0\nmax 3\noom 1\noom_kill {}\noom_group_kill 0\n"
MACHINE = "nr_free_pages 4711\noom_kill {}\nnuma_hit 12\n"


@pytest.fixture
def kernel(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a file of the kernel's below the test's root."""

    def write(name: str, text: str) -> Path:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("group", "counter", "form"),
    [
        ("0::/job/step", "sys/fs/cgroup/job/step/memory.events", V2),
        ("4:memory:/job/step\n0::/", "proc/vmstat", MACHINE),  # groups of the first version: the machine's count
        ("0::/../../docker/0a1b", "sys/fs/cgroup/memory.events", V2),  # a container: the path is the host's
        ("0::/", "proc/vmstat", MACHINE),  # the root group counts nothing, the machine does
    ],
)
def test_the_narrowest_available_counter_is_used(
    kernel: Callable[[str, str], Path], group: str, counter: str, form: str
) -> None:
    kernel("proc/self/cgroup", f"{group}\n")
    kernel("proc/vmstat", MACHINE.format(7))
    root = kernel(counter, form.format(7))
    assert oom_kills(root) == 7
    kernel(counter, form.format(8))
    assert oom_kills(root) == 8


def test_a_kill_elsewhere_on_the_machine_does_not_count_where_the_group_has_a_counter(
    kernel: Callable[[str, str], Path],
) -> None:
    kernel("proc/self/cgroup", "0::/job\n")
    kernel("proc/vmstat", MACHINE.format(1))
    assert oom_kills(kernel("sys/fs/cgroup/job/memory.events", V2.format(0))) == 0


def test_without_a_kernel_counter_no_kill_is_reported(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) == 0
