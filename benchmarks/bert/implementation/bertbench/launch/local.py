"""Start the ranks of this machine, again after one of them died, and print how they ended.

After a rank dies, not the same agent but a new one, with a new store, starts the ranks again. So no key of the last
attempt is left, and the exit codes of that attempt decide whether there is another.
"""

import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from mlperf_logging.mllog import constants
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import elastic_launch

from bertbench.checkpoint.resumption import Resumption, continue_run, ended, find_resumption
from bertbench.common.errors import TARGET_MISSED, BertbenchError, ConfigError, RunError, StoppedError, system_reason
from bertbench.common.system_faults import unreadable
from bertbench.config import System
from bertbench.distributed import loopback
from bertbench.distributed.preemption import SIGNALS
from bertbench.distributed.ranks import Node
from bertbench.launch.agent import agent_of, cause_told, tell_cause
from bertbench.launch.run_options import RUN, RunOptions
from bertbench.machine.describe import hardware_differences
from bertbench.machine.gpu_support import check_gpus
from bertbench.machine.oom import oom_kills
from bertbench.runs.files import ResultFiles
from bertbench.runs.json_files import metric_rows
from bertbench.runs.mlperf_log import INTERRUPTED, MlperfLog

PREEMPTED = StoppedError.exit_code
"""Exit code of a run that SIGTERM or SIGUSR1 stopped; the scheduler may queue it again."""
_MORE_MEMORY = "give the job more, or raise data.gradient_accumulation_steps"

ENOUGH = 3
"""Number of deaths by the same fault, without a new step, after which another restart is hopeless."""
# Signals by which the kernel or the C library ends a faulty program; all others come from outside.
_OWN_FAULTS = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS}


class Ended(NamedTuple):
    """How an attempt ended."""

    code: int
    """The exit code."""
    reason: str | None = None
    reported: bool = False
    """Whether a rank has printed the reason."""
    outside: bool = False
    """Whether the cause lies outside of the run."""


class Death(NamedTuple):
    """An attempt that failed."""

    fault: str | None
    """The fault; None for a signal from outside."""
    last_step: int
    """The last step that the run had recorded."""


def run_ranks(
    system: System, options: RunOptions, files: ResultFiles, resumption: Resumption | None, node: Node | None = None
) -> int:
    """Make a run with the ranks of this machine, which is the only one or the first `node`; return the exit code.

    With `resumption` they resume. On a single machine, they resume again after a rank dies, up to `launch.max_restarts`
    times; not after a user's mistake, and not if the run keeps dying by the same fault without a new step. The log at
    `files.log` is always closed: a run that had started ends with run_stop, one that had not leaves no log.
    """
    return _exit_code(files, lambda: _attempts(system, options, files, resumption, node))


def run_ranks_of_node(system: System, options: RunOptions, node: Node) -> int:
    """Start the ranks of a machine other than the first. If they fail, tell the first one why, and return a code.

    The code is 0 for a run that missed its target or was stopped: srun would end the first node, whose code counts.
    """
    try:
        last = _attempt(agent_of(system, node), replace(options, launched=True))
    except SignalException:
        return 0
    if last.reason and not last.reported:
        cause = f"{last.reason} on {socket.gethostname()}"
        print(f"bertbench: {cause}", file=sys.stderr, flush=True)
        with suppress(SignalException):  # the first launcher ends, and its end stops this one
            tell_cause(cause)
    return 0 if last.code in (TARGET_MISSED, PREEMPTED) else last.code


def run_once(system: System, words: list[str], files: ResultFiles) -> int:
    """Run `bertbench` with these arguments on every rank of this machine, without restarts.

    Otherwise as `run_ranks`.
    """
    return _exit_code(files, lambda: _attempt_of(agent_of(system), words))


def _exit_code(files: ResultFiles, attempts: Callable[[], Ended]) -> int:
    """Make the attempts and return their exit code; close the log, and print a cause that no rank has printed."""
    last = Ended(RunError.exit_code)
    try:
        last = attempts()
    except SignalException as stopped:
        code = PREEMPTED if stopped.sigval in SIGNALS else 128 + stopped.sigval.value
        last = Ended(code, f"the launcher was stopped by {stopped.sigval.name}")
    finally:
        _close_log_after(last, files)
    if last.reason:
        print("all ranks stopped" if last.reported else f"{last.reason}; all ranks stopped", file=sys.stderr)
    return last.code


def _close_log_after(last: Ended, files: ResultFiles) -> None:
    """Close the log. Raises RunError if that fails, unless a rank has printed why: a full disk makes both fail."""
    try:
        close_log(files, last.reason)
    except RunError:
        if not last.reported:
            raise


def _attempts(
    system: System, options: RunOptions, files: ResultFiles, resumption: Resumption | None, node: Node | None
) -> Ended:
    deaths: list[Death] = []
    restarts_left = 0 if node else system.launch.max_restarts
    while True:
        agent = agent_of(system, node)
        begin_attempt(files, resumption, system, options)
        resume = str(resumption.path) if resumption else "never"
        try:
            attempt = _attempt(agent, replace(options, launched=True, result=files.log, resume=resume))
        except SignalException:
            if node and (cause := cause_told()):  # srun stops this launcher because another node's ranks have failed
                return Ended(RunError.exit_code, cause, reported=True)
            raise
        if attempt.code != RunError.exit_code or ended(files.log) or not restarts_left:
            return attempt
        last_step = max((row["step"] for row in metric_rows(files.log)), default=0)
        deaths.append(Death(None if attempt.outside else attempt.reason, last_step))
        if hopeless(deaths):
            times = f"{ENOUGH} times without a step after {last_step}"
            return Ended(attempt.code, f"{attempt.reason}, {times}: not started again")
        close_log(files, attempt.reason, again=True)
        resumption = find_resumption("auto", files.log, files.log.parent)
        again = f"resumes after step {resumption.meta.step}" if resumption else "restarts from step 0"
        restarts_left -= 1
        options = replace(options, began=None, allocated=None, submitted=None)
        print(f"{attempt.reason}; {again}, restarts left: {restarts_left}", file=sys.stderr)


def begin_attempt(files: ResultFiles, resumption: Resumption | None, system: System, options: RunOptions) -> None:
    """Record that ranks are started, and restore a resumed run's files to its snapshot."""
    with files.open_trace() as trace:
        trace.attempt(options.began, options.allocated, options.submitted)
    if resumption:
        continue_run(resumption, system)


def _attempt(agent: elastic_launch, options: RunOptions) -> Ended:
    os.environ[RUN] = options.text()
    return _attempt_of(agent, options.rank_words or ["train", options.system])


def _attempt_of(agent: elastic_launch, words: list[str]) -> Ended:
    killed_before = oom_kills()
    try:
        agent("-P", "-m", "bertbench", *words)  # -P: the working directory may have a folder of this name
        return Ended(0)
    except ChildFailedError as failed:
        return how_ended(failed.failures, oom_kills() > killed_before)


def how_ended(failures: Mapping[int, ProcessFailure], out_of_memory: bool) -> Ended:
    """Return how an attempt with failed ranks ended: what the rank says that knows most about the cause.

    Other ranks lost contact with it or ended with its cause, perhaps earlier; the agent stops the rest with SIGTERM.
    """
    rank = min(failures, key=lambda failed: (_knowledge(failures[failed]), failures[failed].timestamp))
    failure = failures[rank]
    code = failure.exitcode
    if code in (TARGET_MISSED, PREEMPTED):
        return Ended(code)
    if code < 0:
        return ended_by_signal(rank, signal.Signals(-code), out_of_memory)
    code = code if code == BertbenchError.exit_code else RunError.exit_code
    if _reported(failure):
        return Ended(code, failure.message, reported=True)
    return Ended(code, f"rank {rank} ended with exit code {failure.exitcode}")


def ended_by_signal(rank: int, number: signal.Signals, out_of_memory: bool) -> Ended:
    """Return how a run ends if a signal kills a rank; `out_of_memory` is whether the kernel counted such a kill."""
    killed = f"rank {rank} was killed by {number.name}"
    from_outside = number not in _OWN_FAULTS
    if number == signal.SIGKILL and out_of_memory:
        killed = f"{killed} for lack of memory; {_MORE_MEMORY}"
        from_outside = False
    if number == signal.SIGBUS:
        killed = f"{killed}: a file that it maps, such as a shard, was truncated, or its disk failed; see `dmesg`"
    return Ended(RunError.exit_code, killed, outside=from_outside)


def _knowledge(failure: ProcessFailure) -> tuple[bool, ...]:
    """Return a sorting key: the ranks that know most about the cause come first.

    A mistake of the user counts most, then another cause that a rank recorded, a kill, a stop, and a kill by a stop.
    """
    code = failure.exitcode
    was_killed = code < 0
    knowledge = (
        code == TARGET_MISSED,  # a rank exits with it only after all ranks have ended normally
        code == BertbenchError.exit_code,  # a mistake of the user
        _reported(failure),
        was_killed and -code not in SIGNALS,
        code == PREEMPTED,
        was_killed,
    )
    return tuple(not known for known in knowledge)  # false sorts before true


def _reported(failure: ProcessFailure) -> bool:
    """Return whether the rank has recorded a cause, other than a stop together with the rest."""
    return "timestamp" in failure.error_file_data and StoppedError.SIGN not in failure.message


def check_startable(system: System, node: Node | None = None, elsewhere: str = "") -> None:
    """Raise ConfigError if this machine can't start its ranks: nodes, GPUs or loopback are missing, or a port is taken.

    It is the user's choice of a system, machine or setting that has to change; no run has failed. `node` is the
    machine's place among several. `elsewhere` says how to start on several nodes; by default, it says it for a run.
    """
    nodes = system.hardware.number_of_nodes
    if node and node.nodes != nodes:
        raise ConfigError(
            f"{node.nodes} nodes were started (PET_NNODES), but {system.name} has {nodes}; on Slurm, submit it with "
            f"sbatch -N {nodes}"
        )
    if nodes > 1 and not node:
        launch = f"bertbench launch {shlex.quote(system.argument)}"
        elsewhere = elsewhere or f"start it with `{launch} --on slurm`, or by hand with the lines that --dry-run prints"
        raise ConfigError(f"{system.name} has {nodes} nodes, but this is one; {elsewhere}")
    try:
        hardware_differences(system.hardware)  # raises if GPUs are missing; each node warns about the rest later
        check_gpus(system)
        if not node:
            loopback.own_address()
    except RunError as error:  # which it is on the nodes of a cluster, where another node may take over
        raise ConfigError(str(error)) from error
    if system.launch.port and not node:
        _check_port(system.launch.port)


def _check_port(port: int) -> None:
    address = loopback.own_address()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} can't be used ({system_reason(error)}); set launch.port to another, or to 0 for any "
                "free one"
            ) from error


def close_log(files: ResultFiles, reason: str | None, again: bool = False) -> None:
    """Close the log of a run whose rank 0 could not, with the reason; remove the files of a run that never started.

    `again` means that the run will be restarted, and keeps its number if it never started. Raises RunError if the log
    can't be read.
    """
    try:
        written = files.log.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(unreadable(files.log, error, "give the log of a run")) from error
    if f'"key": "{constants.RUN_START}"' not in written:
        files.discard(again)
        if again:
            _end_attempt(files)
    elif reason is not None:
        _end_attempt(files)
        with MlperfLog(files.log) as log:
            if f'"key": "{constants.RUN_STOP}"' in written:
                log.point("failure", reason)
            else:
                ending = {constants.STATUS: constants.ABORTED, "reason": reason, INTERRUPTED: True}
                log.end(constants.RUN_STOP, ending)


def _end_attempt(files: ResultFiles) -> None:
    with files.open_trace() as trace:
        trace.ended()


def hopeless(deaths: Sequence[Death]) -> bool:
    """Return whether a run has died too often by the same fault of its own, without a new step in between."""
    steps = [death.last_step for death in deaths]
    first_after_new_step = steps.index(max(steps))
    kinds = [_kind_of_fault(death) for death in deaths[first_after_new_step:]]
    return kinds[-1] is not None and kinds.count(kinds[-1]) >= ENOUGH


def _kind_of_fault(death: Death) -> str | None:
    """Return a fault without its numbers, so that it is the same for any rank and any waiting time."""
    return None if death.fault is None else re.sub(r"\d+", "#", death.fault)
