"""Set up the process group of a run: this rank, its device and its peers. No other file names backends."""

import gc
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed
from torch.distributed.distributed_c10d import PrefixStore

from bertbench.distributed import gloo
from bertbench.distributed.cores import (
    bind_threads,
    nearby_cores,
    own_cores,
    threads_on,
    threads_per_rank,
)
from bertbench.distributed.device import take_device
from bertbench.distributed.device_steps import DeviceSteps
from bertbench.distributed.failure import FailureReport
from bertbench.distributed.network_errors import naming_network_variables, network_variables
from bertbench.distributed.ranks import Ranks, launched_ranks
from bertbench.distributed.rendezvous import meet, meet_on_loopback, on_one_machine
from bertbench.distributed.shared_memory import SharedMemory
from bertbench.distributed.watchdog import Limits, Watchdog

Value = TypeVar("Value")
_LIMITS = Limits(silent_s=60, progress_s=600)
_CORES_KEY = "bertbench/cores"
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


@dataclass(frozen=True)
class World:
    """This rank among all ranks of the run, and the device that it computes on."""

    ranks: Ranks
    device: torch.device
    store: PrefixStore
    timeout: timedelta
    """Time after which a collective fails."""
    failure: FailureReport
    watchdog: Watchdog
    shared: SharedMemory | None = None
    """What sums tensors for a small group of CPU ranks on one machine; None if torch's collectives do."""

    @property
    def rank(self) -> int:
        """Return the number of this process among all."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """Return the number of processes of the run."""
        return self.ranks.size

    @property
    def leads(self) -> bool:
        """Return whether this is rank 0, which writes the log."""
        return self.ranks.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum the tensor over all ranks, in place."""
        if self.shared is None:
            distributed.all_reduce(tensor)
        else:
            self.shared.sum(tensor)
        return tensor

    def largest(self, tensor: Tensor) -> Tensor:
        """Replace each element by the largest of all ranks' values, in place."""
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
        return tensor

    def neighbours(self, ranks: int) -> distributed.ProcessGroup:
        """Return a new gloo group of this rank and its neighbours, `ranks` in all.

        Every rank of the world must call it. Raises ConfigError as `gloo.choose_interface` does.
        """
        _choose_interface(self.ranks)
        group, _ = distributed.new_subgroups(ranks, backend="gloo", timeout=self.timeout)
        return group

    def from_all(self, value: Value) -> list[Value]:
        """Return every rank's value, by rank, on every rank."""
        values = [value] * self.size
        distributed.all_gather_object(values, value)
        return values

    def collectives_begun(self) -> int:
        """Return how many collectives of all ranks this rank has begun; the numbers differ if ranks have parted."""
        group = distributed.group.WORLD
        by_torch: int = group._get_sequence_number_for_group()  # type: ignore[union-attr]  # missing in torch's stubs
        return by_torch + (0 if self.shared is None else self.shared.begun)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        # without the GPU's number, NCCL takes `rank % GPUs`: another rank's GPU if a node has more GPUs than ranks
        distributed.barrier(device_ids=[self.device.index] if self.device.type == "cuda" else None)


@contextmanager
def join(
    device_kind: str,
    timeout_s: int,
    bind_cores: bool = False,
    limits: Limits = _LIMITS,
    ranks: Ranks | None = None,
) -> Iterator[World]:
    """Meet the other ranks, and leave the process group together if the body succeeds.

    `bind_cores` keeps each rank to its own cores. `ranks` is by default what the launcher says; without a launcher,
    this process is the only rank. If a rank stalls beyond the limits, the processes of all ranks are ended
    (distributed/watchdog.py). Raises RunError with the missing ranks if the ranks can't meet within `timeout_s`, and
    ConfigError if variables for the network can't be right.
    """
    ranks = ranks or launched_ranks(os.environ) or Ranks(0, 1, 0, 1)
    # ranks share the cores: a layer on two ranks took 1.77 times as long with all cores for each
    torch.set_num_threads(threads_per_rank(ranks.local_size))
    set_by_hand = network_variables()
    if device_kind == "cpu":
        _choose_interface(ranks)
    device = take_device(device_kind, ranks.local_rank)
    store = meet(ranks, timeout_s)
    if bind_cores or (device_kind == "cpu" and hasattr(os, "sched_getaffinity")):
        # before the process group, whose threads inherit the cores of the thread that starts them
        _share_cores(ranks, device, store, bind_cores)
    # longer than the watchdog's limits, so that the watchdog ends the run and names the rank that stalls
    timeout = timedelta(seconds=max(timeout_s, limits.progress_s + limits.silent_s))
    options = None
    if device_kind == "cuda":  # NCCL's collectives get priority over the computation that they overlap
        options = distributed.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options._timeout = timeout  # torch warns if it differs from the argument
    with naming_network_variables(_BACKENDS[device_kind], set_by_hand):
        distributed.init_process_group(
            _BACKENDS[device_kind],
            store=PrefixStore("collectives", store),
            rank=ranks.rank,
            world_size=ranks.size,
            timeout=timeout,
            pg_options=options,
        )
    # a connection of its own: the main thread may be waiting in the other one
    own_store = store.clone()  # type: ignore[attr-defined]  # missing in torch's stubs
    failure = FailureReport(own_store, ranks)
    near = device_kind == "cpu" and on_one_machine(ranks)
    shared = SharedMemory.join(store, ranks.rank, ranks.size, timeout) if near else None
    device_steps = DeviceSteps.on(device) if device_kind == "cuda" else None
    watchdog = Watchdog(own_store, ranks, failure, limits, device_steps)
    world = World(ranks, device, store, timeout, failure, watchdog, shared)
    # NCCL connects here. With `device_id`, torch would connect above, and split off each further group at once.
    with naming_network_variables(_BACKENDS[device_kind], set_by_hand):
        world.barrier()
    world.watchdog.start()
    try:
        yield world
    finally:
        world.watchdog.close()
    # In another order, gloo sometimes aborts at exit because a future is still alive (3 of 8 runs).
    gc.collect()
    world.barrier()
    if shared is not None:
        shared.close()
    distributed.destroy_process_group()


def _choose_interface(ranks: Ranks) -> None:
    gloo.choose_interface(one_machine=ranks.size == 1 or meet_on_loopback(), prints=ranks.local_rank == 0)


def _share_cores(ranks: Ranks, device: torch.device, store: PrefixStore, bind: bool) -> None:
    """Use as many threads as this rank has cores of its own, as far as a quota allows; if `bind`, bind it to them.

    The ranks of a node exchange their nearby cores through the store.
    """
    keys = [f"{_CORES_KEY}/{socket.gethostname()}/{local_rank}" for local_rank in range(ranks.local_size)]
    store.set(keys[ranks.local_rank], json.dumps(nearby_cores(device)))
    nearby = [json.loads(store.get(key)) for key in keys]  # waits for each
    cores = own_cores(ranks.local_rank, nearby)
    if bind:
        bind_threads(cores)
    torch.set_num_threads(threads_on(len(cores), len(nearby)))
