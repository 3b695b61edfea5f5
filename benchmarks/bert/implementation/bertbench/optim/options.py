"""Options of optimizer and gradient reduction as plain values, so that reading a system file doesn't load torch."""

from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["adam", "lamb", "muon"]
Implementation = Literal["torch", "apex", "triton"]
ClipMode = Literal["none", "after", "before", "bucket"]
Compression = Literal["none", "fp16", "bf16", "int8", "topk", "powersgd"]
SyncMethod = Literal["every_step", "delayed", "local_sgd", "diloco"]


@dataclass(frozen=True)
class AdamOptions:
    """Hyper-parameters that stay fixed during a run; each step passes its learning rate."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01


@dataclass(frozen=True)
class MuonOptions:
    """Muon's options, in addition to AdamOptions."""

    momentum: float = 0.95
    nesterov: bool = True
    ns_steps: int = 5
    """Newton-Schulz iterations of one update."""


@dataclass(frozen=True)
class OptimizerOptions:
    """The optimizer and the options of its parts."""

    name: OptimizerName = "adam"
    adam: AdamOptions = AdamOptions()
    muon: MuonOptions = MuonOptions()
    half_products: bool = False
    """Whether Muon's products are computed in bf16, for hardware that multiplies bf16 faster."""

    @property
    def is_adam_or_lamb(self) -> bool:
        """Return whether it is Adam or LAMB, as in published results: every layout and kernel supports them."""
        return self.name in ("adam", "lamb")

    @property
    def trust_ratio(self) -> bool:
        """Return whether updates are scaled to the norm of their weights."""
        return self.name == "lamb"


@dataclass(frozen=True)
class ReduceOptions:
    """How ranks communicate gradients."""

    compression: Compression = "none"
    powersgd_rank: int = 4
    """Rank of the matrices that PowerSGD sends in place of a gradient matrix."""
    powersgd_start_step: int = 10
    """Steps summed in full before PowerSGD starts; torch's hook needs at least 2."""
    hierarchical: bool = False
    """Sum within each node first, then across nodes."""
    topk_share: float = 0.01
    """Share of a bucket's elements that top-k sends."""


@dataclass(frozen=True)
class OuterOptions:
    """The outer step that makes independently trained ranks' weights equal again (local_updates.py)."""

    every_steps: int
    learning_rate: float
    momentum: float
    """Nesterov's."""
