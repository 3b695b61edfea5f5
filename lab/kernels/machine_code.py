"""Compile Triton kernels to machine code for an absent GPU, and read their resource usage.

Triton includes ptxas and cuobjdump. On a GPU, Inductor times a kernel's launch configurations and takes the fastest.
Here, the configuration that spills least is used and, of several, the one with the fewest registers.
"""

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from bertbench.common.children import dying_with_us
from lab.kernels.absent_gpu import Gpu, seen_by_compiler
from lab.kernels.codegen import Kernel

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")


class Resources(NamedTuple):
    """The resources of a thread or block of a kernel."""

    spill_bytes: int
    """Bytes on the stack of a thread; Triton's kernels use the stack only for spilled registers."""
    registers: int
    """Registers of a thread; a multiprocessor has 65,536 in all."""
    shared_bytes: int
    """Shared memory of a block."""


def compiled(gpu: Gpu, kernels: Iterable[Kernel]) -> dict[str, Resources]:
    """Compile the kernels that Inductor wrote for `gpu`; return the resources of each by its source."""
    from torch._inductor import config  # noqa: PLC0415 - torch's compiler takes seconds
    from torch._inductor.runtime import triton_helpers  # noqa: PLC0415

    resources = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        seen_by_compiler(gpu),
        config.patch(use_static_cuda_launcher=False),
        mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None),
        mock.patch.dict("os.environ", TRITON_CACHE_DIR=folder),
    ):
        for number, kernel in enumerate({kernel.source: kernel for kernel in kernels}.values()):
            autotuner = _loaded(Path(folder) / f"kernel_{number}.py", kernel)
            resources[kernel.source] = min(
                usage(autotuner._precompile_config(launch).kernel.asm["cubin"], Path(folder))
                for launch in autotuner.configs
            )
    return resources


def _loaded(path: Path, kernel: Kernel) -> Any:
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.name)


def usage(cubin: bytes, folder: Path) -> Resources:
    """Read the resources of a compiled kernel."""
    from triton import knobs  # noqa: PLC0415 - optional

    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=dying_with_us()).stdout
    match = _USAGE.search(output)
    assert match, f"cuobjdump printed {output!r}"
    registers, stack, shared = map(int, match.groups())
    return Resources(stack, registers, shared)
