"""Count and compile all pieces of the step on all architectures, one process each.

torch's compiler caches device properties for the life of its process, so each architecture needs its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bertbench.common.errors import RunError
from bertbench.config.optimizer import Implementation
from bertbench.forecast.kernels.absent_gpu import GPUS
from bertbench.forecast.kernels.step import PIECES
from bertbench.model.options import ResidualName
from bertbench.model.shape import BertShape


class Found(NamedTuple):
    """Resources that a piece takes."""

    arch: str
    piece: str
    tokens: int
    optimizer: Implementation
    kernels: int
    launches: int
    megabytes: float
    megabytes_beside_products: float
    registers_max: int
    shared_bytes_max: int
    spill_bytes: int
    elements_of_one_block: int


def certificate(
    archs: Sequence[str],
    tokens: int,
    residual: ResidualName = "fp32",
    wanted: Sequence[str] = PIECES,
    optimizer: Implementation = "torch",
) -> list[Found]:
    """Count and compile pieces of BERT-Large's step of `tokens` tokens, by architecture and piece.

    Raises RunError if one can't be compiled.
    """
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        by_arch = pool.map(lambda arch: _in_a_process(arch, tokens, residual, wanted, optimizer), archs)
        return [found for several in by_arch for found in several]


def count_and_compile(
    arch: str, tokens: int, residual: ResidualName, wanted: Sequence[str], optimizer: Implementation
) -> list[Found]:
    """Count and compile in this process, which must not have compiled for another architecture."""
    from bertbench.forecast.kernels.machine_code import compiled  # noqa: PLC0415 - Triton, which is optional
    from bertbench.forecast.kernels.step import count_pieces  # noqa: PLC0415 - torch's compiler takes seconds

    pieces = count_pieces(GPUS[arch], BertShape(), tokens, residual, wanted, optimizer)
    kernels = {name: [kernel for run in piece.runs for kernel in run.graph.kernels] for name, piece in pieces.items()}
    resources = compiled(GPUS[arch], (kernel for several in kernels.values() for kernel in several))
    found = []
    for name, piece in pieces.items():
        taken = [resources[kernel.source] for kernel in kernels[name]]
        found.append(
            Found(
                arch=arch,
                piece=name,
                tokens=tokens,
                optimizer=optimizer,
                kernels=piece.triton_launches,
                launches=piece.launches,
                megabytes=round(piece.bytes / 1e6, 1),
                megabytes_beside_products=round(piece.bytes_beside_products / 1e6, 1),
                registers_max=max((one.registers for one in taken), default=0),
                shared_bytes_max=max((one.shared_bytes for one in taken), default=0),
                spill_bytes=max((one.spill_bytes for one in taken), default=0),
                elements_of_one_block=max((kernel.elements_of_one_block for kernel in kernels[name]), default=0),
            )
        )
    return found


def _in_a_process(
    arch: str, tokens: int, residual: ResidualName, wanted: Sequence[str], optimizer: Implementation
) -> list[Found]:
    command = [sys.executable, "-m", __name__, arch, str(tokens), residual, ",".join(wanted), optimizer]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise RunError(f"{arch}: compiling the kernels failed ({last[0]}); `{' '.join(command[1:])}` shows the rest")
    return [Found(**one) for one in json.loads(done.stdout)]


if __name__ == "__main__":
    arch, tokens, pieces = sys.argv[1], int(sys.argv[2]), sys.argv[4].split(",")
    residual: ResidualName = "bf16" if sys.argv[3] == "bf16" else "fp32"
    optimizer: Implementation = "triton" if sys.argv[5] == "triton" else "torch"
    print(json.dumps([one._asdict() for one in count_and_compile(arch, tokens, residual, pieces, optimizer)]))
