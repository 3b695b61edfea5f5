"""The optimizer's section of a system file, and the rules that tie it to other sections."""

from typing import Annotated

from pydantic import Field

from bertbench.config.sections import Fraction, Section
from bertbench.optim.options import AdamOptions, Implementation, MuonOptions, OptimizerName, OptimizerOptions


class Muon(Section):
    """What `optimizer.name` muon does to the encoder's matrices; Adam updates embeddings, heads and vectors."""

    momentum: Fraction = 0.95
    nesterov: bool = True
    ns_steps: Annotated[int, Field(ge=1, le=100)] = 5
    """Newton-Schulz iterations of one update."""


class Optimizer(Section):
    """The optimiser; the closed division allows LAMB only."""

    name: OptimizerName
    learning_rate: Annotated[float, Field(gt=0)]
    """Rate at the end of warm-up."""
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    impl: Implementation = "torch"
    """`triton`: kernels of ours for CUDA, few launches for all tensors (tried on no GPU yet); `apex`: NVIDIA apex's
    FusedLAMB or FusedAdam, which their PyTorch container brings."""
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Evaluate an exponential moving average of the weights, which keeps this share of itself at each step; 0: the
    weights as they are."""
    muon: Muon = Muon()
    sharded: bool = False
    """Every rank sums, updates and keeps the state of its slice of every gradient bucket only (ZeRO's first stage);
    the result is the same, but for rounding."""

    def options(self) -> OptimizerOptions:
        """The part that stays fixed during a run, as the optimiser takes it."""
        return OptimizerOptions(
            self.name,
            AdamOptions(self.beta1, self.beta2, self.epsilon, self.weight_decay),
            MuonOptions(self.muon.momentum, self.muon.nesterov, self.muon.ns_steps),
        )
