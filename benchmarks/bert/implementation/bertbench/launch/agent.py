"""Start the ranks of one machine with torch's elastic agent, which is torchrun's engine.

On one machine, the agent's store listens on loopback only. On one of several, the agents meet in the first one's store,
and each starts its own machine's ranks.
"""

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import ClassVar

from torch.distributed import TCPStore
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from bertbench.common import environment
from bertbench.common.children import obeyed, temporary_folder
from bertbench.config import System
from bertbench.distributed.cores import available_cores, threads_per_rank
from bertbench.distributed.failure import READ_EVERY_S, record_cause, recorded_cause
from bertbench.distributed.loopback import loopback_store, own_address
from bertbench.distributed.preemption import SIGNALS
from bertbench.distributed.ranks import Node
from bertbench.distributed.rendezvous import Comer, call_roll, end_roll_call, of_attempt, open_store

_RENDEZVOUS = "bertbench"
_SIGNALS_OF_TORCH = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # not SIGNALS: `_stop` handles them


def agent_of(system: System, node: Node | None = None) -> elastic_launch:
    """Return an agent that, called with arguments for Python, starts a process for each rank of this machine.

    `node` is the machine's place among those of the run; None if it is the only one. The agent raises ChildFailedError
    if a rank's exit code isn't 0, and RunError if the nodes can't meet. If this process gets a signal, it passes the
    signal on to the ranks, waits for them, and raises SignalException.
    """
    for asked in obeyed(SIGNALS):
        signal.signal(asked, _stop)
    # time for a snapshot; torch 2.11 ignores this variable and waits 30 s
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(system.launch.timeout_s))
    ranks = system.launch.ranks_per_node
    if available_cores() < ranks:
        print(
            f"warning: {ranks} ranks share {available_cores()} cores; on Slurm, submit the job with sbatch --exclusive",
            file=sys.stderr,
            flush=True,
        )
    _set_threads(threads_per_rank(ranks))
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):  # the callers report failures; each logger has its own level
            logging.getLogger(name).setLevel(logging.CRITICAL)
    causes = temporary_folder()  # where ranks write why they fail; torch would leave its own folder
    number, nodes, address, port = node or Node(0, 1, "127.0.0.1", system.launch.port)
    return elastic_launch(
        LaunchConfig(
            min_nodes=nodes,
            max_nodes=nodes,
            nproc_per_node=ranks,
            logs_specs=DefaultLogsSpecs(causes),
            run_id=_RENDEZVOUS,
            rdzv_backend=_RENDEZVOUS,
            rdzv_endpoint=address,
            rdzv_configs={"rank": number, "port": port, "timeout": system.launch.timeout_s},
            local_addr=address if nodes == 1 else None,
            max_restarts=0,
            signals_to_handle=",".join(name.name for name in obeyed(_SIGNALS_OF_TORCH)),
        ),
        sys.executable,
    )


def _set_threads(threads: int) -> None:
    """Set the number of threads of ranks that start from now on, and name the user's variables that this replaces."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        before = os.environ.get(name)
        if before and before != str(threads):
            share = "1 thread" if threads == 1 else f"{threads} threads"
            print(
                f"{name}={before} isn't used: each rank computes with its share of the cores, {share}",
                file=sys.stderr,
                flush=True,
            )
        os.environ[name] = str(threads)
    for name, value in environment.not_used.items():
        print(f"{name}={value} isn't used: launch.bind_cores binds ranks to cores", file=sys.stderr, flush=True)


def _stop(number: int, frame: FrameType | None) -> None:
    for further in SIGNALS:  # a second signal must not cut the ranks' snapshot short
        signal.signal(further, signal.SIG_IGN)
    raise SignalException("stopped", signal.Signals(number))


def tell_cause(cause: str) -> None:
    """Record why this node's ranks ended for those of the others, and give these the time to end with it."""
    if _Meeting.store is None:
        return
    with suppress(RuntimeError, OSError):  # the first node, which holds the store, is gone, too
        attempt = of_attempt(_Meeting.store)
        end_roll_call(attempt, cause)
        record_cause(attempt, cause)
        time.sleep(2 * READ_EVERY_S)


def cause_told() -> str | None:
    """Return why the run has failed, as a rank or a launcher of any node has recorded it; None if none has."""
    with suppress(RuntimeError, OSError):
        return None if _Meeting.store is None else recorded_cause(of_attempt(_Meeting.store))
    return None


class _Meeting(StaticTCPRendezvous):
    """The agents' meeting. The first one holds the store in which the ranks meet, too."""

    store: ClassVar[TCPStore | None] = None
    """The store of the latest meeting. It lasts longer than its agent, so that other nodes can read a cause there."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        number, port, timeout_s = (parameters.config[name] for name in ("rank", "port", "timeout"))
        nodes = parameters.max_nodes
        address = parameters.endpoint
        if nodes == 1:
            address = own_address()
            held = loopback_store(port, address=address)
        else:
            self._comer = Comer("node", number, nodes)
            held = open_store(address, port, number == 0, self._comer, timeout_s)
        self._held = held
        _Meeting.store = held
        super().__init__(address, held.port, number, nodes, parameters.run_id, timeout_s)

    def get_backend(self) -> str:
        return _RENDEZVOUS

    def next_rendezvous(self) -> RendezvousInfo:
        if self.world_size > 1:
            call_roll(PrefixStore("nodes", self._held), self._comer, int(self.timeout.total_seconds()))
        where = RendezvousStoreInfo(self.master_addr, self.master_port)
        return RendezvousInfo(self._held, self.rank, self.world_size, where)


rendezvous_handler_registry.register(_RENDEZVOUS, _Meeting)
