"""Start the ranks of one machine with torch's elastic agent (torchrun's engine), and tell how they ended."""

import logging
import os
import signal
import socket
import sys
import uuid

from mlperf_logging.mllog import constants
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from bertbench import loopback
from bertbench.config import System
from bertbench.errors import BertbenchError, RunError, StoppedError, system_reason
from bertbench.events import INTERRUPTED, MlperfLog
from bertbench.machine import differences
from bertbench.results import ResultFiles
from bertbench.world import available_cores

TARGET_MISSED = 3
"""Exit code of a run that ended in order without reaching its target."""


def agent_of(system: System) -> elastic_launch:
    """What starts a process for each rank of this machine when it is called with words for Python.

    It raises ChildFailedError if a rank ends with another code than 0, SignalException if it is told to stop.
    """
    os.environ["OMP_NUM_THREADS"] = str(max(1, available_cores() // system.launch.ranks_per_node))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # its news are told by the callers
    return elastic_launch(
        LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=system.launch.ranks_per_node,
            run_id=uuid.uuid4().hex,
            rdzv_backend=loopback.BACKEND,
            rdzv_endpoint=f"127.0.0.1:{system.launch.port}",
            local_addr="127.0.0.1",
            max_restarts=0,
        ),
        sys.executable,
    )


def run_ranks(system: System, arguments: list[str], files: ResultFiles) -> int:
    """Run `bertbench train` with these arguments on every rank of this machine; returns the exit code.

    However the ranks end, the log at `files.log` is closed: a run that had started ends with run_stop, one that
    had not leaves no log.
    """
    agent = agent_of(system)
    reason = None
    try:
        agent("-m", "bertbench", "train", *arguments, "--result", str(files.log))
        return 0
    except ChildFailedError as failed:
        # A rank says so only after all have ended in order; the agent may stop those still leaving with SIGTERM.
        if any(failure.exitcode == TARGET_MISSED for failure in failed.failures.values()):
            return TARGET_MISSED
        rank, failure = min(failed.failures.items(), key=_cause_first)
        if _told(failure):
            reason = failure.message
        elif failure.exitcode < 0:
            reason = f"rank {rank} was killed by {signal.Signals(-failure.exitcode).name}"
        else:
            reason = f"rank {rank} ended with exit code {failure.exitcode}"
        print("all ranks stopped" if _told(failure) else f"{reason}; all ranks stopped", file=sys.stderr)
        return failure.exitcode if failure.exitcode == BertbenchError.exit_code else RunError.exit_code
    except SignalException as stopped:
        reason = f"the launcher was stopped by {stopped.sigval.name}"
        print(f"{reason}; all ranks stopped", file=sys.stderr)
        return 128 + stopped.sigval.value
    finally:
        close_log(files, reason)


def _cause_first(failed: tuple[int, ProcessFailure]) -> tuple[bool, bool, int]:
    """A rank that knows why, then one that was killed, which can't say so; the others lost contact with it."""
    failure = failed[1]
    return not _told(failure), failure.exitcode >= 0, failure.timestamp


def _told(failure: ProcessFailure) -> bool:
    """Whether the rank has left the cause, other than to have been stopped with the rest."""
    return "timestamp" in failure.error_file_data and StoppedError.SIGN not in failure.message


def check_startable(system: System) -> None:
    """Raises RunError if the system can't start on this machine: too many nodes, too few GPUs, a port that is taken."""
    nodes, port = system.hardware.number_of_nodes, system.launch.port
    if nodes > 1:
        raise RunError(
            f"{system.name} has {nodes} nodes and this is one; start it with --on slurm or --on kubernetes, or by hand "
            "with the lines that --dry-run prints"
        )
    differences(system.hardware)  # for its error; of the rest each node warns when it runs
    if port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise RunError(
                    f"port {port} can't be used ({system_reason(error)}); "
                    "set launch.port to another, or to 0 for any free one"
                ) from error


def close_log(files: ResultFiles, reason: str | None) -> None:
    """End the log of a run whose rank 0 could not, tell why it failed; remove what a run that never started left.

    Raises RunError if the log can't be read.
    """
    try:
        written = files.log.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"{files.log}: cannot be read ({system_reason(error)}); give the log of a run") from error
    if f'"key": "{constants.RUN_START}"' not in written:
        files.discard()
    elif reason is not None:
        with MlperfLog(files.log) as log:
            if f'"key": "{constants.RUN_STOP}"' in written:
                log.point("failure", reason)
            else:
                ending = {constants.STATUS: constants.ABORTED, "reason": reason, INTERRUPTED: True}
                log.end(constants.RUN_STOP, ending)
