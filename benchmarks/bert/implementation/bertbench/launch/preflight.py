"""Describe and measure the nodes of an allocation before a run; `launch/allocation.py` finds what is wrong with them.

`this_node` describes a node; `clock_offsets_s`, `all_reduce_gbit` and `neighbours_gbit` measure between nodes with the
run's own backend.
"""

import hashlib
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import distributed

import compliance
from bertbench.common.errors import BertbenchError, RunError
from bertbench.common.paths import PACKAGE, data_path, runs_folder
from bertbench.common.phase_clock import wait_for_device
from bertbench.common.system_faults import unreadable, unwritable
from bertbench.config import System
from bertbench.data.store.manifest import MANIFEST_NAME
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.machine.describe import hardware_differences
from bertbench.machine.gpu_support import check_gpus
from bertbench.machine.gpus import gpus_and_problems
from bertbench.machine.provenance import provenance

_CODE_FOLDERS = (PACKAGE, Path(compliance.__file__).parent)
_SHOWN_DIGITS = 10
"""Number of digits of a SHA-256 digest that are shown."""
_GB = 1e9
_UNREADABLE = "none"
"""The fact of a file that can't be read."""
_REDUCED_BYTES = {"cuda": 512 << 20, "cpu": 8 << 20}
_BYTES_PER_ELEMENT = 4
_REPEATS = 5
_CLOCK_REPEATS = 5


@dataclass(frozen=True)
class Node:
    """A node's facts, including those that must be the same on all nodes, and its own problems."""

    host: str
    ranks: list[int]
    code: str
    """Commit, and the first digits of SHA-256 over the code and the resolved system."""
    data: str
    """First digits of SHA-256 over the manifests, and the bytes of the checkpoint."""
    gpus: list[str]
    disk_free_gb: float
    clock_offset_ms: float = 0.0
    all_reduce_gbit: float | None = None
    problems: list[str] = field(default_factory=list)


def this_node(system: System, ranks: list[int]) -> Node:
    """Describe the node of this process; `ranks` are those that run on it."""
    problems: list[str] = []
    try:
        hardware_differences(system.hardware)
        check_gpus(system)
    except RunError as error:
        problems.append(str(error))
    gpus, gpu_problems = gpus_and_problems()
    if system.launch.device == "cuda":
        problems += gpu_problems
    return Node(
        host=socket.gethostname(),
        ranks=ranks,
        code=_describe_code(system),
        data=_describe_data(system, problems),
        gpus=gpus,
        disk_free_gb=_free_disk_bytes(problems) / _GB,
        problems=problems,
    )


def _describe_code(system: System) -> str:
    digest = hashlib.sha256(system.model_dump_json().encode())
    for folder in _CODE_FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            name = str(path.relative_to(folder.parent)).encode()
            digest.update(name + b"\0" + path.read_bytes() + b"\0")
    commit = provenance()["commit"]
    shown_commit = str(commit)[:10] if commit else "no commit"
    return f"{shown_commit} {digest.hexdigest()[:_SHOWN_DIGITS]}"


def _describe_data(system: System, problems: list[str]) -> str:
    """Return the digests of the manifests and the size of the checkpoint.

    Add what can't be read, or couldn't be trained on, to `problems`.
    """
    folders = dict.fromkeys((system.data.path, system.data.eval_path or system.data.path))  # each once
    manifests = [data_path(folder) / MANIFEST_NAME for folder in folders]
    facts = [_fact_of_file(path, _digest_of_file, problems) for path in manifests]
    if _UNREADABLE not in facts:
        try:
            open_data(system)
        except BertbenchError as error:
            problems.append(str(error))
    if system.model.checkpoint is not None:
        facts.append(_fact_of_file(data_path(system.model.checkpoint), _size_of_file, problems))
    return " ".join(facts)


def _digest_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:_SHOWN_DIGITS]


def _size_of_file(path: Path) -> str:
    return f"{path.stat().st_size} bytes"


def _fact_of_file(path: Path, fact: Callable[[Path], str], problems: list[str]) -> str:
    try:
        return fact(path)
    except OSError as error:
        problems.append(unreadable(path, error, "prepare the data and import the checkpoint, or set DATADIR"))
        return _UNREADABLE


def _free_disk_bytes(problems: list[str]) -> int:
    """Return the free bytes where the run would write; add to `problems` if it couldn't."""
    folder = runs_folder()
    existing_folder = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing_folder).free
    try:
        probe = existing_folder / f".bertbench_preflight_{socket.gethostname()}"
        probe.write_text("")
        probe.unlink(missing_ok=True)
    except OSError as error:
        problems.append(unwritable(existing_folder, error, "set LOGDIR to a writable folder"))
    return free


def clock_offsets_s(world: World) -> list[float]:
    """Return each rank's clock minus rank 0's, by rank. The error is the time between ranks that leave a barrier."""
    rounds = []
    for _ in range(_CLOCK_REPEATS):
        world.barrier()
        rounds.append(world.from_all(time.time()))
    offsets = []
    for rank in range(world.size):
        measured = [times[rank] - times[0] for times in rounds]
        offsets.append(min(measured, key=abs))
    return offsets


def all_reduce_gbit(world: World, ranks: list[int] | None = None) -> float | None:
    """Return the bandwidth of an all-reduce over these ranks (default: all) in Gbit/s; None on other ranks.

    It is counted as in nccl-tests ("bus bandwidth"): 2 (R - 1) / R of the bytes divided by the time, which can be
    compared with the links' rate for any number of ranks. Every rank of the world must call it.
    """
    group = distributed.group.WORLD if ranks is None else distributed.new_group(ranks)
    members = range(world.size) if ranks is None else ranks
    if world.rank not in members or len(members) == 1:
        return None
    elements = _REDUCED_BYTES[world.device.type] // _BYTES_PER_ELEMENT
    tensor = torch.ones(elements, device=world.device)
    seconds = []
    for _ in range(1 + _REPEATS):  # the first one builds connections
        wait_for_device(world.device)
        began = time.perf_counter()
        distributed.all_reduce(tensor, group=group)
        wait_for_device(world.device)
        seconds.append(time.perf_counter() - began)
        tensor.fill_(1)
    bits = 8 * _BYTES_PER_ELEMENT * elements
    share_on_links = 2 * (len(members) - 1) / len(members)
    return 1e-9 * share_on_links * bits / min(seconds[1:])


def neighbours_gbit(world: World, nodes: list[list[int]]) -> float | None:
    """Return the better of a node's bandwidths with its two neighbours, because a bad node is slow with both.

    `nodes` holds each node's ranks. Returns None if there is only one node.
    """
    bandwidths: list[float] = []
    for first in (0, 1):  # pairs 0-1, 2-3, ..., then 1-2, 3-4, ...: each node in one pair at a time
        for place in range(first, len(nodes) - 1, 2):
            measured = all_reduce_gbit(world, nodes[place] + nodes[place + 1])
            if measured is not None:
                bandwidths.append(measured)
    return max(bandwidths, default=None)
