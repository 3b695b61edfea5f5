"""Compute a step's time from a software stack's FLOPs, bytes and launches, and its hardware's published rates.

Three words mark the evidence: *counted* are launches and bytes of kernels that exist (lab/kernels); *computed* are
floating-point operations, bytes of other stacks, and all times; *measured* are only published results. The shares of
the hardware's rates that kernels reach are assumed (EFFICIENCIES) and were chosen knowing the published results:
agreement with those is a fit, not a test of the model. A share changes only by a measurement on a GPU.
"""

from typing import Literal, NamedTuple

import numpy as np

from bertbench.balance.cost import MASKED_SHARE
from bertbench.balance.random_samples import length_shares
from bertbench.config.closed import EVALUATION_SAMPLES
from bertbench.machine.gpu_peaks import DENSE_TFLOPS
from bertbench.model.shape import BertShape, FlopTerms
from bertbench.plan.load_efficiency import flops_per_sample
from bertbench.plan.step_time import FORWARD_SHARE, HARDWARE, START_UP_S, Gpu

_PEAK_FP8 = 1e12 * DENSE_TFLOPS["H100"]["fp8"]
_BANDWIDTH = {"a100": 2.039e12, "h100": 3.35e12, "h200": 4.8e12}  # bytes/s, data sheets of the SXM modules
_EVALUATION_INTERVAL = 150_000  # training samples


class Efficiency(NamedTuple):
    """A share of a rate that kernels reach."""

    share: float
    reason: str
    evidence: str = "assumed"
    """`assumed`, or the GPU that it was measured on."""


EFFICIENCIES: dict[str, Efficiency] = {
    "products_16bit": Efficiency(0.64, "a large product's 0.80 times 0.8 for BERT's widths, neither measured here"),
    "products_fp8": Efficiency(0.40, "of fp8's peak: 0.8 of the time in 16 bit, fitted to published runs"),
    "attention_a100": Efficiency(0.40, "FlashAttention-2 with dropout, heads of 64"),
    "attention_hopper": Efficiency(0.20, "the same kernel, written for A100, of Hopper's peak"),
    "attention_cudnn": Efficiency(0.30, "kernels made for Hopper, as the published runs have"),
    "memory": Efficiency(0.85, "of the data sheet's bandwidth, not measured here"),
}
HOST_US = 8.0
"""Assumed time of the host for one launch outside a CUDA graph, Python between pieces included."""
NODE_US = 1.2
"""Assumed gap between two kernels of a CUDA graph."""


class Stack(NamedTuple):
    """Software on one or eight GPUs of a node, and its batch."""

    name: str
    gpu: Gpu
    gpus: int
    samples: int
    """Samples of a step on one GPU."""
    filler: float
    """Tokens that are computed for nothing, as a share of the samples' tokens."""
    bytes: float
    """Bytes of a step besides matrix products and attention."""
    launches: int
    """Launches by the host."""
    nodes: int
    """Kernels of a CUDA graph, which the host launches at once."""
    word: Literal["counted", "computed"]
    """Evidence of the bytes, launches and nodes."""
    in_fp8: bool
    """Whether the encoder's products are in fp8."""
    attention: str
    exposed_s: float
    """Seconds of the reduction, and of gathers, that nothing hides."""


class StepTime(NamedTuple):
    """Milliseconds of a step by term; the host works in parallel with the GPU."""

    products: float
    attention: float
    memory: float
    communication: float
    gaps: float
    host: float

    @property
    def total(self) -> float:
        """Return the sum of the GPU's terms, or the host's time if that is longer."""
        return max(self.products + self.attention + self.memory + self.communication + self.gaps, self.host)

    @property
    def limit(self) -> str:
        """Return the largest term: the host if it takes longer than all of the GPU's."""
        if self.host == self.total:
            return "host"
        return max(self._fields[:-1], key=lambda term: float(getattr(self, term)))


def mean_length() -> float:
    """Return the mean length of Wikipedia's samples, in tokens."""
    shares = length_shares()
    return float(shares @ np.arange(1, len(shares) + 1))


def tokens_of(samples: int) -> int:
    """Return the tokens of a batch, rounded up to a multiple of 256."""
    return round(samples * mean_length() / 256) * 256


def step_time(stack: Stack) -> StepTime:
    """Return the time of a step on each GPU."""
    hardware = HARDWARE[stack.gpu]
    terms = FlopTerms.of(BertShape())
    share = {term: efficiency.share for term, efficiency in EFFICIENCIES.items()}
    tokens = stack.samples * mean_length()
    encoder = terms.token * tokens
    head = terms.masked * MASKED_SHARE * tokens
    attention = stack.samples * flops_per_sample() - encoder - head
    computed = 1 + stack.filler  # filler sequences are short: attention computes next to nothing for them
    rate16 = hardware.peak_flops * share["products_16bit"]
    encoder_rate = _PEAK_FP8 * share["products_fp8"] if stack.in_fp8 else rate16
    return StepTime(
        products=1e3 * computed * (encoder / encoder_rate + head / rate16),
        attention=1e3 * attention / (hardware.peak_flops * share[stack.attention]),
        memory=1e3 * stack.bytes / (_BANDWIDTH[stack.gpu] * share["memory"]),
        communication=1e3 * stack.exposed_s,
        gaps=1e-3 * NODE_US * stack.nodes,
        host=1e-3 * HOST_US * stack.launches,
    )


def samples_per_second(stack: Stack, samples_to_converge: float) -> float:
    """Return a GPU's samples/s over a whole run, counted like published results: with evaluations and start-up."""
    step_s = step_time(stack).total / 1e3
    per_sample = step_s / stack.samples * (1 + FORWARD_SHARE * EVALUATION_SAMPLES / _EVALUATION_INTERVAL)
    return samples_to_converge / (samples_to_converge * per_sample + START_UP_S * stack.gpus)
