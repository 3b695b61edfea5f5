"""Compute a step's FLOP/s: the model's operations over the step's time, for each device, and as a share of its peak.

model/shape.py says which operations count; machine/peak_rate.py what the peak is. MFU is model FLOP utilisation, HFU
hardware FLOP utilisation, which also counts what recomputation repeats (arXiv 2205.05198, section 5).
"""

from dataclasses import dataclass

from bertbench.config import System
from bertbench.machine.peak_rate import PeakRate
from bertbench.model.shape import BatchCounts, FlopTerms

FlopFields = dict[str, float | None]
"""Fields of a line of metrics.jsonl."""


@dataclass(frozen=True)
class FlopRate:
    """What turns a step's tokens and time into FLOP/s."""

    terms: FlopTerms
    recomputes: bool
    """Whether layers compute their forward pass twice."""
    devices: int
    peak_tflops: float | None
    """Of one device; None where it isn't known."""

    @classmethod
    def of(cls, system: System, peak: PeakRate) -> "FlopRate":
        """Return the rate of a system whose devices have this peak; each rank has a device."""
        terms = FlopTerms.of(system.model.shape())
        return cls(terms, system.parallel.recompute, system.world_size, peak.tflops)

    def fields(self, counts: BatchCounts, step_ms: float) -> FlopFields:
        """Return the rates of a step; `mfu` is None where the peak isn't known.

        The fields that start with `hardware`, and `hfu`, are those of a run that recomputes.
        """
        model_flop = self.terms.training(counts)
        rates = self._rates("tflops_per_device", "mfu", model_flop, step_ms)
        if self.recomputes:
            hardware_flop = model_flop + self.terms.recomputation(counts)
            rates |= self._rates("hardware_tflops_per_device", "hfu", hardware_flop, step_ms)
        return rates

    def _rates(self, rate_name: str, share_name: str, flop: float, step_ms: float) -> FlopFields:
        tflops = flop / (1e-3 * step_ms) / self.devices / 1e12 if step_ms else 0.0
        share = None if self.peak_tflops is None else float(f"{tflops / self.peak_tflops:.6g}")
        return {rate_name: float(f"{tflops:.6g}"), share_name: share}
