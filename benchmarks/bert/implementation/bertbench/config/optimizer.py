"""Define the sections of a system file about a step: optimizer, rate, clipping and the sum; import no torch.

Optimizers and reductions take these sections as they are.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from bertbench.common.section import Count, Fraction, Section

OptimizerName = Literal["adam", "lamb", "muon"]
Implementation = Literal["auto", "torch", "apex", "triton"]
ClipMode = Literal["none", "after", "before", "bucket"]
Compression = Literal["none", "fp16", "bf16"]

GRADIENT_BYTES = 4  # fp32
MOST_SUMMED_RANKS: dict[Compression, int] = {"bf16": 2**8, "fp16": 2**11}
"""The most ranks over which a format sums. NCCL may add up the ranks one after another, and rounds after each addition.
If ranks agree, the sum of more of them than the format's significand counts stops growing: what the next one adds is
less than half of the last bit."""
_MIB = 2**20
_FIRST_BUCKET_MIB, _BUCKET_MIB = 1.0, 25.0  # DDP's: a small bucket first, so that communication starts early


class MuonSettings(Section):
    """What `optimizer.name` muon does to the encoder's matrices; Adam updates embeddings, heads and vectors."""

    momentum: Fraction = 0.95
    """Share of the last update's direction that the next one keeps."""
    ns_steps: Annotated[int, Field(ge=1, le=100)] = 5
    """Newton-Schulz iterations of one update. Fewer are faster and less exact."""


class OptimizerSettings(Section):
    """The optimizer; the closed division allows only LAMB."""

    name: OptimizerName
    """Update rule (docs/optimizers.md): `lamb` in the closed division, and with published values for large batches;
    `adam` as the usual baseline; `muon` to try something newer."""
    learning_rate: PositiveFloat
    """Rate at the end of warm-up. Change it with the global batch, or let `scale_from_batch` do so."""
    beta1: Fraction = 0.9
    """Share of the mean gradient that each step keeps."""
    beta2: Fraction = 0.999
    """Share of the mean squared gradient that each step keeps. Lower it for runs of few steps."""
    epsilon: PositiveFloat = 1e-6
    """Added to the root of the mean squared gradient. Raise it where updates of rare weights are too large."""
    weight_decay: NonNegativeFloat = 0.01
    """Decay of the matrices, as a factor of the learning rate; biases and LayerNorms have none."""
    impl: Implementation = "torch"
    """`triton`: our own CUDA kernels, with few launches for all tensors (tried on one H100); `apex`: NVIDIA apex's
    FusedLAMB, which NVIDIA's PyTorch container includes (not tried on a GPU yet); `auto`: triton on cuda, if it is
    installed and passes the check of a run's fast paths, else torch."""
    ema_decay: Fraction = 0.0
    """Evaluate an exponential moving average of the weights, which keeps this share of itself at each step. With 0,
    evaluate the weights themselves."""
    muon: MuonSettings = MuonSettings()
    sharded: bool = False
    """Each rank sums gradients, updates weights and keeps optimizer state for its slice of every bucket only (ZeRO's
    first stage). The result is the same, apart from rounding. Set it where memory is short, or where NVLink joins the
    GPUs, on up to 256 of them (docs/optimizers.md)."""

    @property
    def is_adam_or_lamb(self) -> bool:
        """Return whether it is Adam or LAMB, as in published results: every layout and kernel supports them."""
        return self.name in ("adam", "lamb")

    @property
    def trust_ratio(self) -> bool:
        """Return whether updates are scaled to the norm of their weights."""
        return self.name == "lamb"


class Clip(Section):
    """Gradient clipping."""

    mode: ClipMode = "after"
    """`after`: the reduced gradient, by its global norm; `before`: every rank's whole gradient, before the all-reduce;
    `bucket`: every rank's gradient bucket by bucket, each just before its all-reduce (formulas in docs/clipping.md)."""
    max_norm: PositiveFloat = 1.0
    """Largest norm of a gradient. Lower it where the loss jumps; metrics.jsonl has the share that is clipped."""
    divisor: Count | None = None
    """The number B in a bucket's largest norm, max_norm / sqrt(B), for mode `bucket` (default: the number of buckets).
    With a smaller number, the whole gradient's norm may exceed max_norm."""
    parts: Literal["sum", "each"] = "sum"
    """What modes `before` and `bucket` clip if a rank accumulates its batch in parts. `sum`: the sum of the parts.
    `each`: every part before it is added, as the submission of arXiv 2402.02447 does (docs/clipping.md)."""

    def limit(self, buckets: int) -> float | None:
        """Return the largest norm of what is clipped at once: one of `buckets` buckets, or the whole gradient.

        None if nothing is clipped. It holds for a gradient of a mean loss: the reduced one, or that of a rank or part.
        """
        if self.mode == "none":
            return None
        return self.max_norm / math.sqrt(self.root_of(buckets))

    def root_of(self, buckets: int) -> int:
        """Return the number whose root divides `max_norm`, if gradients are in `buckets` buckets."""
        return (self.divisor or buckets) if self.mode == "bucket" else 1


class Communication(Section):
    """How ranks communicate gradients."""

    compression: Compression = "none"
    """Format in which gradients are sent. `fp16`, `bf16`: half the bytes, over at most 2,048 and 256 ranks
    (docs/techniques.md)."""
    bucket_mb: PositiveFloat | None = None
    """Size of a gradient bucket in MiB (default: as in torch, 1 for the first and 25 for the rest). Larger buckets
    mean fewer messages, which start later."""
    buckets: Count | None = None
    """Number of gradient buckets, instead of `bucket_mb`; their sizes are as equal as whole tensors allow. Set it where
    the number matters, as for `clip.mode` bucket."""


def bucket_limits(bucket_mb: float | None) -> list[int]:
    """Return the bytes that close the first buckets of a gradient, the last number for all further ones."""
    limits = [_FIRST_BUCKET_MIB, _BUCKET_MIB] if bucket_mb is None else [bucket_mb]
    return [int(limit * _MIB) for limit in limits]


class Schedule(Section):
    """Learning rate over steps: warm-up, then polynomial decay."""

    max_steps: Count
    """Number of steps after which the run gives up. The learning rate reaches its final value by then, unless
    `decay_steps` says otherwise, so change both with the batch."""
    decay_steps: Count | None = None
    """Step at which the rate reaches its final value (default: `max_steps`)."""
    decay_from: Literal["step_0", "warmup_steps"] = "step_0"
    """Step from which the decay is counted. `step_0`: as in the MLPerf reference; the rate falls where warm-up ends.
    `warmup_steps`: from step `warmup_steps`, even if warm-up starts before step 0 and so ends earlier, as in the
    published runs of arXiv 2402.02447; the rate then rises above `optimizer.learning_rate` where warm-up ends."""
    first_step: Literal[0, 1] = 0
    """Number of the first step in the formula. With 0, step s, counted from 0, has rate(s), as in the MLPerf reference.
    With 1, it has rate(s + 1), as in the published runs of NVIDIA and of arXiv 2402.02447."""
    warmup_steps: NonNegativeInt = 0
    """Number of steps in which the rate rises from 0. Raise it where the first steps diverge."""
    start_warmup_step: int = 0
    """Step at which warm-up starts: at most `first_step`, because the rate would be negative before it. A negative
    number lets the first step begin with a rate above 0."""
    end_learning_rate: NonNegativeFloat = 0.0
    """Rate after the last step of the decay."""


@dataclass(frozen=True)
class LearningRate:
    """Learning rate by step (mlcommons/training, BERT reference).

    Step n, counted from 0, has the number s = n + first_step. While s - start_warmup_step < warmup_steps, the rate is
    base * (s - start_warmup_step) / warmup_steps. After that, with d = decay_from_step, it is
    end + (base - end) * (1 - (s - d) / (decay_steps - d)), and end beyond decay_steps.
    In the reference, d and end are 0: the decay is not shifted by the warm-up, so the rate falls where warm-up ends. In
    the published runs of arXiv 2402.02447, d is 82 and warm-up ends at step 66, so the rate rises above base there.
    """

    base: float
    end: float
    warmup_steps: int
    start_warmup_step: int
    decay_steps: int
    decay_from_step: int = 0
    """Step from which the decay is counted."""
    first_step: int = 0
    """Number of the first step in the formula."""
    power: ClassVar[int] = 1
    """Power of the polynomial; the closed division requires 1."""

    def rate(self, step: int) -> float:
        """Return the learning rate of step `step`, counted from 0."""
        number = step + self.first_step
        warmed = number - self.start_warmup_step
        if warmed < self.warmup_steps:
            return self.base * warmed / self.warmup_steps
        decayed = (number - self.decay_from_step) / (self.decay_steps - self.decay_from_step)
        return self.end + (self.base - self.end) * max(0.0, 1 - decayed) ** self.power

    def rates_by_step(self, steps: int) -> dict[int, float]:
        """Return the rate of the first and the last of `steps` steps, and of those by which the schedule is defined.

        Those are the end of warm-up, `warmup_steps` and `decay_steps`, where the run has such a step.
        """
        end_of_warmup = self.start_warmup_step + self.warmup_steps
        defining = {0, end_of_warmup, self.warmup_steps, self.decay_steps, steps - 1}
        return {step: self.rate(step) for step in sorted(defining) if 0 <= step < steps}
