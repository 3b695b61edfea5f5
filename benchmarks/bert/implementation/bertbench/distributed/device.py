"""Take the device of a rank, a GPU or the CPU, and set up its memory allocator: torch's or the C library's."""

import ctypes
import os
import socket

import torch

from bertbench.common.errors import RunError

_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_EXPANDABLE = "expandable_segments:True"
# mallopt(3): no block is mapped by itself, and 2 GB may lie free at the end of the heap.
_M_MMAP_MAX = -4
_M_TRIM_THRESHOLD = -1
_LARGEST_TRIM_THRESHOLD = 2**31 - 1


def take_device(kind: str, local_rank: int) -> torch.device:
    """Return a rank's `cpu`, or its `cuda` GPU and make it the current one. Raises RunError if there is no such GPU."""
    if kind == "cpu":
        keep_freed_memory()
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    launcher_shows_one_gpu_to_each_rank = gpus == 1 and shown is not None
    number = 0 if launcher_shows_one_gpu_to_each_rank else local_rank
    if number >= gpus:
        limit = "" if shown is None else f" with CUDA_VISIBLE_DEVICES={shown}"
        raise RunError(
            f"local rank {local_rank} needs GPU {local_rank}, but found {gpus} on {socket.gethostname()}{limit}; "
            "lower launch.ranks_per_node or use a CPU system"
        )
    torch.cuda.set_device(number)
    if not any(name in os.environ for name in _ALLOCATOR_VARIABLES):
        # Batches differ in size, and blocks of fixed size would leave holes. torch has no public function for this, and
        # every process that this one starts would inherit its environment variable.
        torch._C._accelerator_setAllocatorSettings(_EXPANDABLE)
        _keep_nccl_from_registering()
    elif any(_EXPANDABLE in os.environ.get(name, "") for name in _ALLOCATOR_VARIABLES):
        _keep_nccl_from_registering()
    return torch.device("cuda", number)


def _keep_nccl_from_registering() -> None:
    """Keep NCCL from registering the buffers of recorded collectives, unless the user has decided it.

    With expandable segments, replays then read memory that isn't mapped, or hang. Megatron-LM refuses to record steps
    without this variable on GPUs before Blackwell. NCCL reads it when it connects, which is later.
    """
    os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")


def keep_freed_memory() -> None:
    """Let the C library keep the memory that tensors free, for the next step, if it has the option (glibc).

    By default, glibc returns blocks of 32 MB and more to the system when they are freed. The next step gets them back
    page by page, and each page is cleared first. With the medium model, that took 6 % of a step on an EPYC. In return,
    the process keeps its largest size.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST_TRIM_THRESHOLD)
