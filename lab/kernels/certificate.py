"""Count and compile all pieces of the step for all architectures, each in its own process.

torch's compiler caches device properties as long as its process lives, so each architecture needs its own process.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import NamedTuple

from bertbench.common.children import die_with_parent
from bertbench.common.errors import RunError
from bertbench.model.options import PrecisionName, ResidualName
from bertbench.model.shape import BertShape
from lab.kernels.absent_gpu import GPUS
from lab.kernels.step import PIECES


class PieceResources(NamedTuple):
    """The resources that a piece needs."""

    arch: str
    piece: str
    tokens: int
    precision: PrecisionName
    kernels: int
    launches: int
    megabytes: float
    megabytes_beside_products: float
    megabytes_of_attention: float
    """Of `megabytes_beside_products`, those that attention's own kernels move."""
    registers_max: int
    shared_bytes_max: int
    spill_bytes: int
    elements_of_one_block: int
    reading_back: int
    """Triton kernels that read back what they wrote: bytes that Inductor's estimate leaves out."""


def certificate(
    archs: Sequence[str],
    tokens: int,
    residual: ResidualName = "fp32",
    wanted: Sequence[str] = PIECES,
    precision: PrecisionName = "bf16",
) -> list[PieceResources]:
    """Count and compile the pieces of a BERT-Large step of `tokens` tokens, for each architecture.

    Raises RunError if a piece can't be compiled.
    """
    count = partial(
        count_and_compile,
        tokens=tokens,
        residual=residual,
        wanted=wanted,
        precision=precision,
    )
    workers = max(1, (os.cpu_count() or 1) // 2)
    try:
        with ProcessPoolExecutor(
            workers, get_context("spawn"), initializer=die_with_parent, initargs=(os.getpid(),), max_tasks_per_child=1
        ) as pool:
            return list(chain.from_iterable(pool.map(count, archs)))
    except Exception as error:  # Inductor, Triton and a worker that dies raise many kinds of errors
        raise RunError(f"{', '.join(archs)}: compiling the kernels failed ({error!r})") from error


def count_and_compile(
    arch: str,
    tokens: int,
    residual: ResidualName,
    wanted: Sequence[str],
    precision: PrecisionName,
) -> list[PieceResources]:
    """Count and compile in this process, which must not have compiled for another architecture before."""
    from lab.kernels.machine_code import Resources, compiled  # noqa: PLC0415 - loads Triton, which is optional
    from lab.kernels.step import count_pieces  # noqa: PLC0415 - torch's compiler takes seconds

    pieces = count_pieces(GPUS[arch], BertShape(), tokens, residual, wanted, precision)
    kernels = {}
    for name, piece in pieces.items():
        kernels[name] = list(chain.from_iterable(run.kernels for run in piece.runs))
    resources = compiled(GPUS[arch], chain.from_iterable(kernels.values()))
    rows = []
    for name, piece in pieces.items():
        resources_of_kernels = [Resources(0, 0, 0), *(resources[kernel.source] for kernel in kernels[name])]
        spilled, registers, shared = map(max, zip(*resources_of_kernels, strict=True))
        rows.append(
            PieceResources(
                arch=arch,
                piece=name,
                tokens=tokens,
                precision=precision,
                kernels=piece.triton_launches,
                launches=piece.launches,
                megabytes=round(piece.bytes / 1e6, 1),
                megabytes_beside_products=round(piece.bytes_beside_products / 1e6, 1),
                megabytes_of_attention=round(piece.attention_bytes / 1e6, 1),
                registers_max=registers,
                shared_bytes_max=shared,
                spill_bytes=spilled,
                elements_of_one_block=max((kernel.elements_of_one_block for kernel in kernels[name]), default=0),
                reading_back=sum(kernel.reads_back for kernel in kernels[name]),
            )
        )
    return rows
