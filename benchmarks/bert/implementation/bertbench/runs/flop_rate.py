"""Compute a step's FLOP/s per device, and as a share of the device's peak: the model's operations over the step's time.

model/shape.py defines which operations count, machine/peak_rate.py defines the peak. MFU is model FLOP utilisation. HFU
is hardware FLOP utilisation, which also counts operations that recomputation repeats (arXiv 2205.05198, section 5).
"""

from dataclasses import dataclass

from bertbench.config import System
from bertbench.machine.peak_rate import PeakRate
from bertbench.model.shape import BatchCounts, FlopTerms

FlopFields = dict[str, float | None]
"""Fields of a line in metrics.jsonl."""


@dataclass(frozen=True)
class FlopRate:
    """Turns a step's tokens and time into FLOP/s."""

    terms: FlopTerms
    recomputes: bool
    """Whether layers compute their forward pass twice."""
    devices: int
    peak_tflops: float | None
    """The peak of one device; None if unknown."""

    @classmethod
    def of(cls, system: System, peak: PeakRate) -> "FlopRate":
        """Return the rate of a system whose devices have this peak; each rank has a device."""
        terms = FlopTerms.of(system.model.shape())
        return cls(terms, system.parallel.recompute, system.world_size, peak.tflops)

    def fields(self, counts: BatchCounts, step_ms: float) -> FlopFields:
        """Return the rates of a step; `mfu` is None if the peak is unknown.

        Only a run with recomputation has `hfu` and the fields that start with `hardware`.
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
