"""Write metrics.jsonl: for each step loss, learning rate, gradient norm, share clipped, times, FLOP/s and balance.

The last line of each flush also has every rank's time by phase (`ranks_ms`), from which stragglers are found.

The numbers of a step stay on the device until `flush`, where one all-reduce combines the ranks' parts. On a GPU this
happens only at evaluations, so nothing waits for the device in between. On a CPU it happens in every step, or every few
steps if `sync` reduces traffic on a slow link. If ranks train independently, the gradient norm is that of rank 0. If
loss scaling skipped a step, its gradient norm is null.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from bertbench.common.errors import RunError
from bertbench.common.phase_clock import PhaseClock, clocked
from bertbench.common.phases import PHASES, RANKS_MS
from bertbench.common.scalars import Scalar
from bertbench.config.layout import Layout
from bertbench.distributed.rendezvous import ranks_text
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedStep
from bertbench.runs.flop_rate import FlopFields, FlopRate
from bertbench.runs.linefile import LineFile
from bertbench.runs.pipeline_timeline import bubble_of_phases
from bertbench.runs.timeline import Timeline


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
        timeline: Timeline | None = None,
        every: int = 1,
    ) -> None:
        self._world = world
        self._file = LineFile(path)
        self._every = every
        self.timeline = timeline or Timeline(None)
        self._steps: list[_TakenStep] = []
        self.last_loss = math.nan
        self.flop_rate: FlopRate | None = None
        """Turns a step's tokens and time into FLOP/s; None if they aren't counted."""
        self.layout: Layout | None = None
        """The layout of a pipeline, to compute its bubble; None without a pipeline."""
        self.last_flops: FlopFields = {}
        """FLOP/s of the last step that was written."""
        self.phases = PhaseClock(world.device)
        """This rank's time by phase, for the steps taken while these metrics are open."""
        self._clocked = clocked(self.phases)
        self._before_ms = torch.zeros(len(PHASES), dtype=torch.float64)
        self._timed_steps: int | None = None

    def record(self, step: int, samples: int, report: StepReport, step_ms: float, loaded: LoadedStep) -> None:
        """Record one step; raises RunError as `flush` does."""
        self.timeline.waited_s += loaded.wait_ms / 1e3
        if self._timed_steps is None:  # excludes the warm-up, and the first step, which waits for the first samples
            self.phases.discard()
            self._timed_steps = 0
        else:
            self._timed_steps += 1
        without_tensors = loaded._replace(parts=[])  # otherwise they would stay on the device until the flush
        self._steps.append(_TakenStep(step, samples, report, step_ms, without_tensors))
        if self._world.device.type == "cpu" and step % self._every == 0:
            self.flush()

    def flush(self) -> None:
        """Write the steps recorded since the last flush; every rank must call it after the same step.

        Raises RunError on all ranks if a loss or gradient isn't finite, and names the ranks whose loss isn't. Raises
        RunError on rank 0 if the file can't be written.
        """
        steps, self._steps = self._steps, []
        if not steps:
            return
        reports = [step.report for step in steps]
        on_device = torch.stack([torch.stack((report.loss, report.clipped)) for report in reports])
        on_host = torch.tensor([[step.loaded.wait_ms] for step in steps])
        table = torch.cat((on_device, on_host.to(on_device)), dim=1)
        times = self._own_times()
        on_gpu_ms = self._on_gpu_ms(times)
        all_summed = self._world.sum(torch.cat((table.flatten(), times.flatten().to(table))))
        summed = all_summed[: table.numel()].view_as(table)
        ranks_ms = all_summed[table.numel() :].view_as(times)
        rates = _read([report.rate for report in reports])
        norms = _read([report.norm for report in reports])
        scales = _read([report.loss_scale for report in reports])
        lines = []
        fault = None
        for taken, (loss, clipped, wait_ms), rate, norm, scale in zip(
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
                **({} if scale is None else {"loss_scale": scale}),
                **(self._phase_fields(ranks_ms) if taken is steps[-1] and ranks_ms.any() else {}),
            }
            lines.append(json.dumps(line) + "\n")
            if not math.isfinite(loss) or (scale is None and not math.isfinite(norm)):
                fault = self._fault(taken, loss)
                break
            self.last_loss = loss
        self._file.append("".join(lines))
        if fault:
            raise RunError(fault)

    def _phase_fields(self, ranks_ms: Tensor) -> dict[str, Any]:
        """Return the fields for the ranks' times, [ranks, phases], and for the bubble of a pipeline."""
        bubble = None if self.layout is None else bubble_of_phases(ranks_ms, self.layout)
        return _by_phase(ranks_ms) | ({} if bubble is None else {"bubble": round(bubble, 6)})

    def _own_times(self) -> Tensor:
        """Return milliseconds per step since the last flush: [ranks, phases], zero except for this rank's row.

        There are no rows before the second step.
        """
        if not self._timed_steps:
            return torch.zeros(0, len(PHASES))
        times = torch.zeros(self._world.size, len(PHASES))
        total = torch.tensor(self.phases.total_ms(), dtype=torch.float64)
        times[self._world.rank] = (total - self._before_ms) / self._timed_steps
        self._timed_steps, self._before_ms = 0, total
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


def _by_phase(ranks_ms: Tensor) -> dict[str, dict[str, list[float]]]:
    """Return, for each phase, the list of all ranks' times, rounded to 0.01 ms, given [ranks, phases]."""
    by_phase = {}
    for phase, ms_of_ranks in zip(PHASES, ranks_ms.T.tolist(), strict=True):
        by_phase[phase] = [round(ms, 2) for ms in ms_of_ranks]
    return {RANKS_MS: by_phase}


def _read(values: list[Any]) -> list[Any]:
    """Return the values as numbers; all tensors are copied to the host at once."""
    return torch.stack(values).tolist() if isinstance(values[0], Tensor) else values


def _digits(value: float) -> float:
    """Round to nine significant digits, which represent any 32-bit float exactly."""
    return float(f"{value:.9g}")
