"""Write metrics.jsonl: for each step loss, rate, gradient norm, share clipped, times, FLOP/s, balance and rank 0's use.

Every rank's time by phase goes to the run's trace at each call of `flush`: at evaluations and snapshots.

The numbers of a step stay on the device until `flush`, where one all-reduce combines the ranks' parts. On a GPU this
happens only at evaluations, so nothing waits for the device in between. On a CPU it happens in every step, or every few
steps if a study's technique reduces traffic on a slow link. Steps that are written together share what rank 0 uses
(machine/resource_use.py). If ranks train independently, the gradient norm is that of rank 0. If loss scaling skipped a
step, its gradient norm is null.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from bertbench.common.atomic import LineFile
from bertbench.common.errors import RunError
from bertbench.common.phase_clock import PhaseClock, clocked
from bertbench.common.phases import PHASES
from bertbench.common.scalars import Scalar
from bertbench.config import System
from bertbench.config.layout import Layout
from bertbench.distributed.rendezvous import ranks_text
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedStep
from bertbench.machine.peak_rate import PeakRate
from bertbench.machine.resource_use import ResourceUse
from bertbench.model.shape import BatchCounts, FlopTerms
from bertbench.runs.trace import Trace

FlopFields = dict[str, float | None]
"""Fields of a line in metrics.jsonl."""


class StepReport(NamedTuple):
    """Numbers of one step; tensors are on the device."""

    loss: Tensor
    """This rank's share; the shares of all ranks add up to the loss."""
    norm: Tensor
    """Norm of the reduced gradient, before `clip.mode: after` clips it; not finite if the step was skipped."""
    rate: Scalar
    """The learning rate."""
    clipped: Tensor
    """The share of this rank's clipping decisions (one, or one for each bucket) that reduced a norm."""
    loss_scale: Tensor | None
    """The factor on the loss in this step; None without loss scaling."""


@dataclass(frozen=True)
class FlopRate:
    """Turns a step's tokens and time into FLOP/s per device, and into a share of the device's peak.

    model/shape.py defines which operations count, machine/peak_rate.py defines the peak. MFU is model FLOP utilisation.
    HFU is hardware FLOP utilisation, which also counts operations that recomputation repeats (arXiv 2205.05198, section
    5).
    """

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


class _TakenStep(NamedTuple):
    step: int
    samples: int
    report: StepReport
    step_ms: float
    loaded: LoadedStep


class Metrics:
    """Collects steps; rank 0 writes them. On a CPU, `every` steps are written at a time."""

    def __init__(
        self,
        path: Path | None,
        world: World,
        trace: Trace | None = None,
        every: int = 1,
    ) -> None:
        self._world = world
        self._file = LineFile(path)
        self._every = every
        self.trace = trace or Trace(None)
        self._steps: list[_TakenStep] = []
        self.last_loss = math.nan
        self.flop_rate: FlopRate | None = None
        """Turns a step's tokens and time into FLOP/s; None if they aren't counted."""
        self.layout: Layout | None = None
        """The layout of a pipeline, whose stages the trace names; None without a pipeline."""
        self.last_flops: FlopFields = {}
        """FLOP/s of the last step that was written."""
        self.phases = PhaseClock(world.device)
        """This rank's time by phase, for the steps taken while these metrics are open."""
        self._clocked = clocked(self.phases)
        self._before_ms = torch.zeros(len(PHASES), dtype=torch.float64)
        self._timed_steps: int | None = None
        self._last_step = 0
        self._device = world.device
        self._use = ResourceUse(world.device) if world.leads else None

    def start(self) -> None:
        """Count what rank 0 uses from now on: the first step begins, and the initialisation isn't part of it."""
        if self._use:
            self._use.start()

    def record(self, step: int, samples: int, report: StepReport, step_ms: float, loaded: LoadedStep) -> None:
        """Record one step; raises RunError as `flush` does."""
        self.trace.waited_s += loaded.wait_ms / 1e3
        if self._timed_steps is None:  # excludes the warm-up, and the first step, which waits for the first samples
            self.phases.discard()
            self._timed_steps = 0
        else:
            self._timed_steps += 1
        self._last_step = step
        self._device = report.loss.device
        without_tensors = loaded._replace(parts=[])  # otherwise they would stay on the device until the flush
        self._steps.append(_TakenStep(step, samples, report, step_ms, without_tensors))
        if self._world.device.type == "cpu" and step % self._every == 0:
            self._write()

    def flush(self) -> None:
        """Write the steps recorded since the last flush, and their phases; every rank must call it after the same step.

        Raises RunError on all ranks if a loss or gradient isn't finite, and names the ranks whose loss isn't. Raises
        RunError on rank 0 if the file can't be written.
        """
        times = self._own_times()
        self._write(self._on_gpu_ms(times))
        if self._timed_steps:
            ranks_ms = self._world.sum(times.flatten().to(self._device)).view_as(times)
            if ranks_ms.any():
                by_phase = dict(zip(PHASES, ranks_ms.T.tolist(), strict=True))
                self.trace.phases(self._last_step, self._timed_steps, by_phase, self.layout)
            self._timed_steps = 0

    def _write(self, on_gpu_ms: float | None = None) -> None:
        """Write the steps recorded since the last time; raises RunError as `flush` does."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        reports = [step.report for step in steps]
        rows = []
        for report in reports:  # ranks that train independently each have a norm of their own
            is_broken = (~report.norm.isfinite()).to(report.loss)
            rows.append(torch.stack((report.loss, report.clipped, is_broken)))
        on_device = torch.stack(rows)
        on_host = torch.tensor([[step.loaded.wait_ms] for step in steps])
        table = torch.cat((on_device, on_host.to(on_device)), dim=1)
        summed = self._world.sum(table.flatten()).view_as(table)
        rates = _read([report.rate for report in reports])
        norms = _read([report.norm for report in reports])
        scales = _read([report.loss_scale for report in reports])
        use = {} if self._use is None else self._use.read()
        lines = []
        fault = None
        for taken, (loss, clipped, broken, wait_ms), rate, norm, scale in zip(
            steps, summed.tolist(), rates, norms, scales, strict=True
        ):
            step_ms = on_gpu_ms or taken.step_ms
            counts = taken.loaded.counts
            self.last_flops = self.flop_rate.fields(counts, step_ms) if self.flop_rate and counts else {}
            line = {
                "step": taken.step,
                "samples": taken.samples,
                "loss": _digits(loss),
                "lr": _digits(rate),
                "grad_norm": _digits(norm) if math.isfinite(norm) else None,
                "clipped": round(clipped / self._world.size, 6),
                "step_ms": round(step_ms, 3),
                "load_wait_ms": round(wait_ms / self._world.size, 3),
                "load_efficiency": round(taken.loaded.load_efficiency, 4),
                **self.last_flops,
                **use,
                **({} if scale is None else {"loss_scale": scale}),
            }
            lines.append(json.dumps(line) + "\n")
            if not math.isfinite(loss) or (scale is None and broken):
                fault = self._fault(taken, loss)
                break
            self.last_loss = loss
        self._file.append("".join(lines))
        if fault:
            raise RunError(fault)

    def _own_times(self) -> Tensor:
        """Return milliseconds per step since the last flush: [ranks, phases], zero except for this rank's row.

        There are no rows before the second step.
        """
        if not self._timed_steps:
            return torch.zeros(0, len(PHASES))
        times = torch.zeros(self._world.size, len(PHASES))
        total = torch.tensor(self.phases.total_ms(), dtype=torch.float64)
        times[self._world.rank] = (total - self._before_ms) / self._timed_steps
        self._before_ms = total
        return times

    def _on_gpu_ms(self, times: Tensor) -> float | None:
        """Return the mean time of the steps since the last flush, by the GPU's events; None on a CPU, or if unknown.

        The host's clock would show how fast the host launches kernels; the host can be many steps ahead of the GPU.
        """
        if self._world.device.type == "cpu" or not len(times):
            return None
        return float(times[self._world.rank].sum())

    def _fault(self, taken: _TakenStep, loss: float) -> str:
        """Return a message about a step's problem, the same on all ranks. Each says whether its own loss is finite."""
        problem_by_rank = self._world.from_all("" if taken.report.loss.isfinite() else "not finite")
        ranks = [rank for rank, answer in enumerate(problem_by_rank) if answer]
        where = f" on {ranks_text(ranks, self._world.size)}" if ranks else ", but its gradient is not finite"
        return (
            f"the loss of step {taken.step} is {loss}{where}; lower optimizer.learning_rate or lengthen "
            "schedule.warmup_steps"
        )

    def __enter__(self) -> Self:
        self._clocked.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._clocked.__exit__(None, None, None)
        self._file.close()


def _read(values: list[Any]) -> list[Any]:
    """Return the values as numbers; all tensors are copied to the host at once."""
    return torch.stack(values).tolist() if isinstance(values[0], Tensor) else values


def _digits(value: float) -> float:
    """Round to nine significant digits, which represent any 32-bit float exactly."""
    return float(f"{value:.9g}")
