"""Choose the number format and library of a run's matrix products by measurement.

Whether MKL or oneDNN, float32 or bfloat16 is faster depends on the processor. All ranks measure at the same time,
because they will also compute at the same time. They add up their seconds and make one choice. A cache keeps the choice
for later runs on the same kind of machine.
"""

import time
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertbench.common.paths import cache_folder
from bertbench.config import System
from bertbench.config.optimizer import Implementation
from bertbench.config.rules import GRAPH_RULES, broken_rules
from bertbench.distributed.world import World
from bertbench.machine.measurements import read_measurements, remember_measurement
from bertbench.machine.processor import instructions, processor
from bertbench.model.arithmetic import autocast_type, computing
from bertbench.model.encoder import EncoderLayer
from bertbench.model.linear import Products
from bertbench.model.options import CompileMode, PrecisionName, ResidualName, unchecked_mode, without_fp8
from bertbench.model.products import Agree, Shape, fastest_products, layer_shapes
from bertbench.model.sequences import Sequences

_TOKENS = 1024  # per measurement; more tokens take longer and lead to the same choice
_ROUNDS = 3
_CLEARLY = 0.9  # share of float32's time below which bfloat16 is worth its rounding

MEASURED = "measured"
RESUMED = "recorded when the run began"


@dataclass(frozen=True)
class Arithmetic:
    """The choice and its source: a measurement, an earlier one, the resumed run, or the system file."""

    precision: PrecisionName
    products: tuple[tuple[Shape, Products], ...]
    """Libraries by layer shape [features out, features in]; other layers use torch's."""
    source: str
    compile: CompileMode | None = None
    """The mode of torch.compile; None leaves the choice to the system file. `impl` does the same for the optimizer."""
    impl: Implementation | None = None
    residual: ResidualName | None = None
    """The format of the hidden states between layers; None leaves it to the system file."""
    checked: tuple[str, ...] = ()
    """Fast paths that were checked (training/self_check.py)."""
    refused: tuple[str, ...] = ()
    """Fast paths that failed their check, each with the reason and what is used instead."""

    def applied(self, system: System) -> System:
        """Return the system with these choices."""
        residual = self.residual or system.precision.residual
        if without_fp8(self.precision) != "bf16":
            residual = "fp32"
        changes = {
            "precision": {"compute": self.precision, "residual": residual},
            "compute": {"compile": self.compile or system.compute.compile},
            "optimizer": {"impl": self.impl or system.optimizer.impl},
        }
        sections = {name: getattr(system, name).model_copy(update=change) for name, change in changes.items()}
        return system.model_copy(update=sections)

    def text(self) -> str:
        """Return one line that describes the choice, followed by a line for each refused fast path."""
        by_onednn = sum(library == "onednn" for _, products in self.products for library in products)
        libraries = f"{by_onednn} of {3 * len(self.products)} matmuls by oneDNN" if self.products else "torch matmul"
        checked = f"; fast paths verified: {', '.join(self.checked)}" if self.checked else ""
        narrow = ", bf16 between layers" if without_fp8(self.precision) == self.residual == "bf16" else ""
        line = f"arithmetic: {self.precision}{narrow}, {libraries} ({self.source}){checked}"
        return "\n".join([line, *(f"warning: {refusal}" for refusal in self.refused)])

    def record(self) -> dict[str, Any]:
        """Return the content of arithmetic.json."""
        products = [{"outputs": shape[0], "inputs": shape[1], **kinds._asdict()} for shape, kinds in self.products]
        return {"processor": processor(), "torch": torch.__version__, **asdict(self), "products": products}

    @classmethod
    def of(cls, record: Any, source: str) -> "Arithmetic | None":
        """Read the output of `record`; None for other content, such as a record of an older version."""
        products = []
        try:
            for layer in record["products"]:
                shape = layer["outputs"], layer["inputs"]
                products.append((shape, Products(layer["forward"], layer["to_input"], layer["to_weight"])))
            return cls(
                precision=record["precision"],
                products=tuple(products),
                source=source,
                compile=record["compile"],
                impl=record["impl"],
                residual=record["residual"],
                checked=tuple(record["checked"]),
                refused=tuple(record["refused"]),
            )
        except (KeyError, TypeError):
            return None


def choose_arithmetic(system: System, world: World, resumed: Path | None) -> Arithmetic:
    """Return the same choice on every rank, measured now or by an earlier run on the same kind of machine.

    The choice resolves every `auto`: precision, products, torch.compile, optimizer kernels and the residual's format.
    `resumed` is rank 0's record of the run that is being resumed. Such a run keeps its first choice, so that it
    continues bit for bit. Without a record that can be read, the choice is measured.
    """
    cache = cache_folder() / "arithmetic.json"
    key = _key(system, world)
    recorded = None
    if world.leads and resumed:
        recorded = Arithmetic.of(read_measurements(resumed), RESUMED)
    elif world.leads:
        recorded = Arithmetic.of(read_measurements(cache).get(key), "cached measurement")
    arithmetic = world.from_all(recorded)[0]
    if arithmetic is None:
        arithmetic = choose(system, world.device, world.sum)
        if world.leads and arithmetic.source == MEASURED:
            remember_measurement(cache, key, arithmetic.record())
    return with_fastest_paths(system, arithmetic)


def with_fastest_paths(system: System, arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with the fastest torch.compile mode, optimizer kernels and residual that the system allows.

    Choices that the arithmetic has already, such as a resumed run's, stay.
    """
    on_gpu = system.launch.device == "cuda"
    impl = arithmetic.impl or system.optimizer.impl
    if impl == "auto":
        fits_triton = system.optimizer.is_adam_or_lamb and not system.parallel.splits
        impl = "triton" if on_gpu and fits_triton and find_spec("triton") else "torch"
    asked = arithmetic.compile or system.compute.compile
    mode = unchecked_mode(asked, system.launch.device)
    if asked == "auto" and on_gpu:
        replayed = replace(arithmetic, compile="graphs", impl=impl).applied(system)
        if not list(broken_rules(GRAPH_RULES, replayed)):
            mode = "graphs"
    residual = arithmetic.residual or system.precision.residual
    if residual == "auto":
        narrow = on_gpu and without_fp8(arithmetic.precision) == "bf16" and not system.parallel.splits
        residual = "bf16" if narrow else "fp32"
    return replace(arithmetic, compile=mode, impl=impl, residual=residual)


def choose(system: System, device: torch.device, agree: Agree) -> Arithmetic:
    """Measure the choices that the system file leaves open, on every rank at once."""
    precision, library = system.precision.compute, system.compute.products
    if precision == "auto":
        precision = _faster_format(system, device, agree)
    products: dict[Shape, Products] = {}
    if device.type == "cpu" and not system.parallel.splits and library != "torch":
        shape, dtype = system.model.shape(), autocast_type(precision) or torch.float32
        if library == "onednn":
            products = dict.fromkeys(layer_shapes(shape, dtype), Products(library, library, library))
        else:
            products = fastest_products(shape, system.samples_per_pass * shape.max_positions, dtype, agree)
    measured = system.precision.compute == "auto" or (products and library == "auto")
    return Arithmetic(precision, tuple(products.items()), MEASURED if measured else "set by the system file")


def _faster_format(system: System, device: torch.device, agree: Agree) -> PrecisionName:
    """Return bfloat16 if a layer's forward and backward pass is clearly faster in it, else float32."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    shape = system.model.shape()
    sequences = max(1, min(_TOKENS // shape.max_positions, system.samples_per_pass))
    layer = EncoderLayer(shape)
    hidden_TD = torch.randn(sequences * shape.max_positions, shape.hidden_size, requires_grad=True)
    layout = Sequences.of(np.full(sequences, shape.max_positions))

    def pass_s(precision: PrecisionName) -> float:
        began = time.perf_counter()
        with computing(precision, device):
            output_TD = layer(hidden_TD, layout)
        output_TD.sum().backward()
        return time.perf_counter() - began

    _, *rounds = [(pass_s("fp32"), pass_s("bf16")) for _ in range(1 + _ROUNDS)]  # the first generates code
    fp32, bf16 = agree(torch.tensor(rounds, dtype=torch.float64).amin(0)).tolist()
    return "bf16" if bf16 < _CLEARLY * fp32 else "fp32"


def _key(system: System, world: World) -> str:
    """Return a key of everything that a choice depends on."""
    return ", ".join(
        [
            f"{processor()} {instructions()}", f"torch {torch.__version__}", _device(world.device),
            f"{world.ranks.local_size} ranks of {torch.get_num_threads()} threads",
            f"{system.samples_per_pass} samples", str(system.model.shape()),
            f"precision {system.precision.compute}", f"products {system.compute.products}",
            "split model" if system.parallel.splits else "whole model",
        ]
    )  # fmt: skip


def _device(device: torch.device) -> str:
    """Return the kind of a device. Machines with one processor and other GPUs may share a cache."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
