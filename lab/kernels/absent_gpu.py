"""Present an absent GPU to torch's compiler. This is possible because code generation reads only a device's properties.

Nothing runs on it. The generated and compiled code is the same that this torch and Triton would make on the GPU.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from bertbench.common.errors import ConfigError

_KIB, _GIB = 1 << 10, 1 << 30


class Gpu(NamedTuple):
    """The properties of a GPU that the compiler reads, from NVIDIA's data sheets and CUDA's compute capabilities."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    threads: int
    """The most threads that can reside on one multiprocessor."""
    shared_kib: int
    """The shared memory that one block may use."""
    l2_mib: int
    memory_gib: int

    @property
    def compute_capability(self) -> int:
        """Return the two numbers as Triton writes them: 90 for (9, 0)."""
        return 10 * self.capability[0] + self.capability[1]


GPUS = {
    "sm_80": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 2048, 163, 40, 80),
    "sm_90": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 2048, 227, 50, 80),
    "sm_100": Gpu("NVIDIA B200", (10, 0), 148, 2048, 227, 126, 180),
}


def check_triton() -> None:
    """Raise ConfigError if Triton, in which the compiler writes kernels, isn't installed."""
    if find_spec("triton") is None:
        raise ConfigError(
            "counting kernels needs Triton, which isn't installed; install bertbench[kernels] (200 MB; Linux)"
        )


@contextmanager
def seen_by_compiler(gpu: Gpu) -> Iterator[None]:
    """Let torch's compiler find `gpu` as device 0 within the context; only fake tensors can be on it."""
    from torch._dynamo.device_interface import CudaInterface  # noqa: PLC0415 - torch's compiler takes seconds
    from torch._inductor import inductor_prims, scheduler  # noqa: PLC0415
    from torch.utils import _triton  # noqa: PLC0415
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - optional
    from triton.runtime import driver  # noqa: PLC0415

    properties = _properties(gpu)
    asked_by_triton = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", gpu.compute_capability, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_active_torch_device=lambda: torch.device("cuda", 0),
    )
    replaced: list[tuple[Any, dict[str, Any]]] = [
        (torch.cuda, {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "is_bf16_supported": lambda including_emulation=True: True,
            "get_device_capability": lambda device=None: gpu.capability,
            "get_device_properties": lambda device=None: properties,
            "get_rng_state": lambda device="cuda": torch.empty(0),
            "set_rng_state": lambda state, device="cuda": None,
            "_exchange_device": lambda index: 0,
            "_maybe_exchange_device": lambda index: 0,
        }),
        (CudaInterface, {
            "is_available": staticmethod(lambda: True),
            "current_device": staticmethod(lambda: 0),
            "get_device_properties": staticmethod(lambda device=None: properties),
            "get_compute_capability": staticmethod(lambda device=None: gpu.compute_capability),
        }),
        (CudaInterface.Worker, {
            "current_device": staticmethod(lambda: 0),
            "get_device_properties": staticmethod(lambda device=None: properties),
        }),
        (_triton, {"has_triton": lambda: True}),
        (scheduler, {"has_triton": lambda: True}),
        # both would first set the device in C++, which a build without CUDA can't do
        (inductor_prims.lookup_seed, {"prim_meta_impl": _seed_description}),
        (Tensor, {"__invert__": _inverted}),
    ]  # fmt: skip
    with ExitStack() as stack:
        for holder, values in replaced:
            stack.enter_context(mock.patch.multiple(holder, **values))
        # resetting it would look for the absent GPU
        stack.enter_context(mock.patch.object(driver, "_active", asked_by_triton))
        yield


def _properties(gpu: Gpu) -> SimpleNamespace:
    return SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        multi_processor_count=gpu.multiprocessors,
        max_threads_per_multi_processor=gpu.threads,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65_536,
        shared_memory_per_block_optin=gpu.shared_kib * _KIB,
        L2_cache_size=gpu.l2_mib * _KIB * _KIB,
        warp_size=32,
        total_memory=gpu.memory_gib * _GIB,
        gcnArchName="",  # for AMD only
    )


def _seed_description(seeds: Tensor, index: int) -> object:
    from torch import _prims  # noqa: PLC0415

    del index
    return _prims.TensorMeta(shape=(), strides=(), dtype=torch.int64, device=seeds.device)


def _inverted(mask: Tensor) -> Tensor:
    return torch.bitwise_not(mask)
