"""Check collectives and device memory: NCCL on one rank and on all GPUs, and one context a process and GPU."""

import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import distributed

from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.loader import claim
from bertbench.optim.exchange import Exchange, ReduceScatter, slice_of
from lab.bench.gpu.stand import Stand, Unfit, attempt, say
from lab.bench.harness import milliseconds

_REPEATS = 5

Counts = dict[str, int] | str
"""Processes by GPU, or why they can't be counted."""


def collectives(stand: Stand) -> None:
    """Sum, scatter and gather on one rank and on all, in fp32 and bf16, as the trainers do."""
    for ranks in stand.ranks:
        attempt(f"{ranks} ranks", partial(on_ranks, ranks, on_rank, stand.megabytes, device=stand.device))


def on_rank(world: World, megabytes: int) -> None:
    """Run every collective on buffers of `megabytes` MB, check the numbers on every rank, and time it."""
    all_reduce, exchange = Exchange(), ReduceScatter()
    whole = world.size * (world.size + 1) / 2  # 1 + 2 + ... + ranks: small integers, exact in bf16

    def is_sum(buffer: torch.Tensor) -> bool:
        return bool((buffer == whole).all())

    def is_gathered(buffer: torch.Tensor) -> bool:
        return all(bool((slice_of(buffer, place, world.size) == place + 1).all()) for place in range(world.size))

    work: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], bool]]] = {
        "all-reduce": (lambda buffer: all_reduce.sum(buffer)(), is_sum),
        "reduce-scatter": (
            lambda buffer: exchange.sum(buffer)(),
            lambda buffer: is_sum(slice_of(buffer, exchange.place, world.size)),
        ),
        "all-gather": (lambda buffer: exchange.gather(buffer)(), is_gathered),
    }
    for dtype in (torch.float32, torch.bfloat16):
        elements = (megabytes << 20) // dtype.itemsize // world.size * world.size
        for name, (run, is_right) in work.items():
            buffer = torch.full((elements,), world.rank + 1.0, dtype=dtype, device=world.device)
            run(buffer)
            right = torch.tensor(int(is_right(buffer)), device=world.device)
            distributed.all_reduce(right, distributed.ReduceOp.MIN)
            times = []
            for _ in range(_REPEATS):
                world.barrier()
                times.append(milliseconds(partial(run, buffer), world.device))
            if world.leads:
                say({"collective": f"{name}, {str(dtype)[6:]}", "ranks": world.size, "fastest_ms": round(min(times), 3),
                     "megabytes": megabytes, "holds": bool(right)})  # fmt: skip


def contexts(stand: Stand) -> None:
    """Count the processes on each GPU while ranks compute and loader threads copy: exactly one must be ours."""
    stand.need_gpu()
    counts: Counts = on_ranks(stand.gpus, _count_contexts, device="cuda")
    if isinstance(counts, str):
        raise Unfit(counts)
    say({"ranks": stand.gpus, "processes_by_gpu": counts, "holds": all(count <= 1 for count in counts.values())})


def _count_contexts(world: World) -> Counts:
    with ThreadPoolExecutor(1, "loader", claim, (world.device,)) as loader:
        loader.submit(lambda: torch.ones(8).pin_memory().to(world.device, non_blocking=True)).result()
        world.sum(torch.ones((), device=world.device))
        world.barrier()
        counts: Counts = processes_by_gpu() if world.leads else {}
        world.barrier()
    return counts


def processes_by_gpu() -> Counts:
    """Return the number of processes with a context on each GPU, by nvidia-smi; or why nvidia-smi can't say."""
    command = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi does not answer ({error})"
    lines = [line.split(",") for line in done.stdout.splitlines() if "," in line]
    if done.returncode or not lines:
        return "nvidia-smi lists no processes here; some containers hide them"
    return dict(Counter(uuid.strip() for uuid, _ in lines))
