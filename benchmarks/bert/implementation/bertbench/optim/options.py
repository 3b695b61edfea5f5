"""Choices of optimiser and gradient reduction: plain values, so that reading a system file doesn't load torch."""

from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["adam", "lamb", "muon", "nadamw", "schedule_free", "soap"]
WHOLE_MATRICES: tuple[OptimizerName, ...] = ("muon", "soap")
"""Optimizers that update a matrix as a whole, wherever it is."""
Implementation = Literal["torch", "apex", "triton"]
ClipMode = Literal["none", "after", "before", "bucket"]
Compression = Literal["none", "fp16", "bf16", "int8", "topk", "powersgd"]
SyncMethod = Literal["every_step", "delayed", "local_sgd", "diloco"]


@dataclass(frozen=True)
class AdamOptions:
    """Hyper-parameters that stay fixed during a run; the learning rate comes with each step."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01


@dataclass(frozen=True)
class MuonOptions:
    """What Muon takes beside AdamOptions."""

    momentum: float = 0.95
    nesterov: bool = True
    ns_steps: int = 5
    """Newton-Schulz iterations of one update."""


@dataclass(frozen=True)
class SoapOptions:
    """What SOAP takes beside AdamOptions."""

    precondition_frequency: int = 10
    max_precondition_dim: int = 10_000


@dataclass(frozen=True)
class OptimizerOptions:
    """Which optimizer, and what its parts take."""

    name: OptimizerName = "adam"
    adam: AdamOptions = AdamOptions()
    muon: MuonOptions = MuonOptions()
    soap: SoapOptions = SoapOptions()
    half_products: bool = False
    """Whether Muon's products are computed in bf16: its own choice, where the hardware multiplies that faster."""

    @property
    def closed(self) -> bool:
        """Whether it is Adam or LAMB, the optimizers of published results: every layout and every kernel has them."""
        return self.name in ("adam", "lamb")

    @property
    def trust_ratio(self) -> bool:
        """Whether an update is scaled to the norm of its weights."""
        return self.name == "lamb"


@dataclass(frozen=True)
class ReduceOptions:
    """How gradients travel between ranks."""

    compression: Compression = "none"
    powersgd_rank: int = 4
    """Rank of the matrices that PowerSGD sends in place of a gradient matrix."""
    powersgd_start_step: int = 10
    """Steps that are summed in full before PowerSGD starts; at least 2, as torch's hook wants."""
    hierarchical: bool = False
    """Sum within each node first, then across nodes."""
    topk_share: float = 0.01
    """Share of a bucket's elements that top-k sends."""


@dataclass(frozen=True)
class OuterOptions:
    """The step that makes the weights of ranks equal again, which train alone in between (local_updates.py)."""

    every_steps: int
    learning_rate: float
    momentum: float
    """Nesterov's."""
