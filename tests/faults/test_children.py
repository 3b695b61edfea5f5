"""A process that we start ends when the process that started it ends, whatever ended that one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for a signal at the parent's death")

PARENT = """
import subprocess, sys
from bertbench.common.children import dying_with_us
child = subprocess.Popen(["sleep", "3600"], stdout=sys.stdout, preexec_fn=dying_with_us())
print("started", flush=True)
child.wait()
"""
JUDGE = """
import time
from concurrent.futures import ProcessPoolExecutor
from compliance.__main__ import _end_with_parent
pool = ProcessPoolExecutor(2, initializer=_end_with_parent)
work = [pool.submit(time.sleep, 3600) for _ in range(2)]
while not all(future.running() for future in work):
    time.sleep(0.01)
print("started", flush=True)
pool.shutdown()
"""
COMMAND = """
import subprocess, sys
from bertbench.common.children import begin
begin()
subprocess.run([sys.executable, "-c", "import time; from bertbench.common.children import temporary_folder; "
    "print(temporary_folder(), flush=True); time.sleep(3600)"])
"""
ENDING = """
import os, sys, time
from bertbench.common.children import begin
class Slow:
    def __del__(self, write=os.write, sleep=time.sleep):
        write(1, b"ending\\n")
        sleep(1)
slow = Slow()  # deleted with its module, when Python has removed all handlers
begin()
sys.exit(75)
"""
ORPHAN = "from bertbench.common.children import die_with_parent; die_with_parent(parent=0)"


@pytest.mark.parametrize(
    ("program", "number"),
    [(PARENT, signal.SIGKILL), (PARENT, signal.SIGINT), (JUDGE, signal.SIGKILL)],
)
def test_a_child_dies_with_the_process_that_started_it(program: str, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        parent.send_signal(number)
        rest, _ = parent.communicate(timeout=LIMIT_S)  # the pipe ends when the last process that holds it has ended
    assert rest == b""


def test_a_process_whose_parent_ended_before_it_asked_dies_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], timeout=LIMIT_S, check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_stopped_command_removes_the_temporary_folders_of_the_processes_that_it_kills(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as command:
        assert command.stdout is not None
        folder = Path(command.stdout.readline().decode().strip())
        assert folder.parent == tmp_path and folder.is_dir()
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=LIMIT_S)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_python_is_ending_leaves_the_exit_code_as_it_was(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDING], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"ending\n"
        command.send_signal(number)
        _, said = command.communicate(timeout=LIMIT_S)
    assert (command.returncode, said) == (75, b"")
