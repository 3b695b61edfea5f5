"""Who am I among the ranks? The only place that reads launchers' variables and names devices and backends."""

import gc
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed
from torch.distributed import HashStore, TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from bertbench.errors import RunError

_FAILURE_KEY = "bertbench/failure"
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# How gloo, NCCL and the store say that a peer is gone or silent.
_LOST_CONTACT = (
    "closed by peer",
    "reset by peer",
    "Broken pipe",
    "Timed out",
    "timed out",
    "NCCL communicator was aborted",
)
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class Ranks:
    """A process's place: its number among all, and among those of its node."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def launched_ranks(environment: Mapping[str, str]) -> Ranks | None:
    """This process's place as torchrun or Slurm tells it; None if neither started it.

    Raises RunError for a launcher's variable that is missing or no number.
    """
    for launcher, names in (
        ("torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")),
        ("Slurm", ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")),
    ):
        if names[0] not in environment or (launcher == "Slurm" and "SLURM_STEP_ID" not in environment):
            continue
        try:
            return Ranks(*(int(environment[name]) for name in names))
        except KeyError as error:
            raise RunError(
                f"{launcher} set {names[0]} but not {error.args[0]}; start with run_and_time.sh, "
                f"or set {', '.join(names)}"
            ) from error
        except ValueError as error:
            raise RunError(f"{launcher}'s variables {', '.join(names)} must be whole numbers: {error}") from error
    return None


@dataclass(frozen=True)
class World:
    """This rank among all ranks of the run, and the device that it computes on."""

    ranks: Ranks
    device: torch.device
    store: Store
    timeout: timedelta
    """After which a rank that hears nothing from the others gives up."""

    @property
    def rank(self) -> int:
        """Number of this process among all."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """Processes of the whole run."""
        return self.ranks.size

    @property
    def leads(self) -> bool:
        """Whether this is the rank that logs."""
        return self.ranks.rank == 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum of the tensor over all ranks, in place."""
        distributed.all_reduce(tensor)
        return tensor

    def from_first(self, value: int) -> int:
        """Rank 0's value, on every rank."""
        holder = torch.tensor([value], dtype=torch.int64, device=self.device)
        distributed.broadcast(holder, 0)
        return int(holder.item())

    def neighbours(self, ranks: int) -> distributed.ProcessGroup:
        """A group of its own for this rank and its neighbours, `ranks` in all, over main memory on any device.

        Every rank of the world must call it.
        """
        group, _ = distributed.new_subgroups(ranks, backend="gloo", timeout=self.timeout)
        return group

    def barrier(self) -> None:
        """Wait until every rank is here."""
        distributed.barrier()

    def report_failure(self, text: str) -> None:
        """Leave word for the other ranks of why this one stops; the first word stays."""
        try:
            if not self.store.check([_FAILURE_KEY]):
                self.store.set(_FAILURE_KEY, f"rank {self.rank}: {text}")
        except (RuntimeError, OSError):  # the store is gone with the process that held it
            return

    def failure(self) -> str | None:
        """Why some rank stopped, if it could leave word."""
        try:
            return self.store.get(_FAILURE_KEY).decode() if self.store.check([_FAILURE_KEY]) else None
        except (RuntimeError, OSError):  # the store is gone with the process that held it
            return None


@contextmanager
def join(device_kind: str, timeout_s: int) -> Iterator[World]:
    """Meet the other ranks; leave in good order if the body ends well.

    Raises RunError if the ranks can't meet within `timeout_s`.
    """
    ranks = launched_ranks(os.environ) or Ranks(0, 1, 0, 1)
    _limit_threads(ranks.local_size)
    device = _device(device_kind, ranks.local_rank)
    store, timeout = _meet(ranks, timeout_s), timedelta(seconds=timeout_s)
    distributed.init_process_group(
        _BACKENDS[device_kind],
        store=PrefixStore("collectives", store),
        rank=ranks.rank,
        world_size=ranks.size,
        timeout=timeout,
    )
    world = World(ranks, device, store, timeout)
    yield world
    # In this order, or gloo sometimes aborts at exit with DDP's hook still alive (3 of 8 runs).
    gc.collect()
    world.barrier()
    distributed.destroy_process_group()


def lost_contact(error: BaseException) -> bool:
    """Whether an error of torch says that another rank is gone or silent, and not that something of ours broke."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(sign in text for sign in _LOST_CONTACT)


def _meet(ranks: Ranks, timeout_s: int) -> Store:
    """The key-value store through which the ranks find each other."""
    if "MASTER_ADDR" not in os.environ and ranks.size == 1:
        return HashStore()
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RunError(
            f"{' and '.join(missing)} not set, so {ranks.size} ranks can't meet; "
            "set it to the first node's, the same on all ranks"
        )
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    if address in _LOOPBACK and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine: listen where nobody else can reach
    agent_holds_it = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        return TCPStore(
            address,
            int(port),
            ranks.size,
            is_master=ranks.rank == 0 and not agent_holds_it,
            timeout=timedelta(seconds=timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(
            f"rank {ranks.rank} of {ranks.size} could not meet the others at {address}:{port} within {timeout_s} s "
            f"({reason}); check that the port is free and that every rank was started"
        ) from error


def _device(kind: str, local_rank: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    found = torch.cuda.device_count()
    if local_rank >= found:
        raise RunError(
            f"local rank {local_rank} needs GPU {local_rank}, found {found} on {socket.gethostname()}; "
            "lower launch.ranks_per_node or use a CPU system"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _limit_threads(local_size: int) -> None:
    """Share the cores: oversubscribed, throughput fell up to 10 times."""
    torch.set_num_threads(max(1, available_cores() // local_size))
