"""A real Slurm on this machine, with its own munge key, controller, two virtual nodes, and folder.

Debian builds slurmd so that several run on one machine (MULTIPLE_SLURMD), one a virtual node.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab.spawn import free_port

NODES = 2
_CPUS = 4  # claimed of each node, whatever the machine has
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
_START_S = 30


def missing() -> str | None:
    """Return why no cluster can be started here; None if one can."""
    absent = [program for program in _PROGRAMS if not shutil.which(program)]
    if absent:
        return f"found no {', '.join(absent)}; tests/slurm/install.sh installs them"
    return None if os.geteuid() == 0 else "needs root: slurmd starts tasks as other users"


class Cluster:
    """Commands for the running cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *command: str, environment: Mapping[str, str] | None = None, may_fail: bool = False) -> str:
        """Standard output of a Slurm command."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert may_fail or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def state(self, job: str) -> dict[str, str]:
        """Return the fields that `scontrol show job` prints."""
        words = self.call("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, limit_s: float) -> dict[str, str]:
        """The job's state once it has ended; `sbatch --wait` polls too slowly."""
        end = time.monotonic() + limit_s
        while (state := self.state(job))["JobState"] in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"):
            assert time.monotonic() < end, f"job {job} is {state['JobState']} after {limit_s} s"
            time.sleep(0.3)
        return state


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster of idle nodes n1, n2; stopped afterwards."""
    folder.chmod(0o755)
    cluster = Cluster(folder)
    (folder / "slurm.conf").write_text(_configuration(folder, free_port(), free_port()))
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    daemons = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
         f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"],
        ["slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf"],
        *(["slurmd", "-D", "-N", f"n{node}", "-f", f"{folder}/slurm.conf"] for node in range(1, NODES + 1)),
    ]  # fmt: skip
    processes = []
    try:
        for daemon in daemons:
            log = (folder / f"{daemon[0]}{len(processes)}.out").open("w")
            processes.append(subprocess.Popen(daemon, stdout=log, stderr=subprocess.STDOUT))
            log.close()
            if daemon[0] == "munged":
                _wait_for((folder / "munge.socket").exists, "munged's socket")
        nodes = ("sinfo", "--noheader", "--Node", "--format=%T")
        _wait_for(lambda: cluster.call(*nodes, may_fail=True).split().count("idle") == NODES, "idle nodes")
        yield cluster
    finally:
        # what a failed test has left running
        cluster.call("scancel", "--full", "--signal=KILL", "--user=root", may_fail=True)
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _START_S
    while not condition():
        assert time.monotonic() < end, f"no {what} after {_START_S} s"
        time.sleep(0.1)


def _configuration(folder: Path, controller_port: int, node_port: int) -> str:
    host = socket.gethostname()
    return f"""
ClusterName=bertbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SchedulerParameters=batch_sched_delay=1,sched_min_interval=2
ReturnToService=1
MinJobAge=3600
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
KillWait=5
NodeName=n[1-{NODES}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{node_port}-{node_port + NODES - 1}] CPUs={_CPUS}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
