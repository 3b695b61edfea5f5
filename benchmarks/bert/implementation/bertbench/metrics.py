"""metrics.jsonl: one line a step with loss, learning rate, gradient norm, share clipped, time and load balance.

What a step reports stays on the device until `flush`, where one all-reduce brings the ranks' parts together. On a GPU
that happens at evaluations only, so nothing waits for the device in between; on a CPU it happens every step. A step
that loss scaling skipped has no gradient norm: null.
"""

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import torch

from bertbench.errors import RunError
from bertbench.trainer import StepReport
from bertbench.world import World


class Metrics:
    """Collects steps; rank 0 writes them. `remedy` is what to do about a loss that isn't finite."""

    def __init__(
        self,
        path: Path | None,
        world: World,
        remedy: str = "lower optimizer.learning_rate or lengthen schedule.warmup_steps",
    ) -> None:
        self._world = world
        self._remedy = remedy
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None
        self._steps: list[tuple[int, int, StepReport, float, float]] = []
        self.last_loss = math.nan

    def record(self, step: int, samples: int, report: StepReport, step_ms: float, load_efficiency: float) -> None:
        """One step; raises RunError as `flush` does."""
        self._steps.append((step, samples, report, step_ms, load_efficiency))
        if self._world.device.type == "cpu":
            self.flush()

    def flush(self) -> None:
        """Write the steps recorded since the last flush; every rank must call it after the same step.

        Raises RunError on all ranks if a loss is not finite.
        """
        if not self._steps:
            return
        reports = [report for _, _, report, _, _ in self._steps]
        summed = self._world.sum(torch.stack([torch.stack((report.loss, report.clipped)) for report in reports]))
        rates, norms, scales = (
            _read([getattr(report, name) for report in reports]) for name in ("rate", "norm", "loss_scale")
        )
        for (step, samples, _, step_ms, load_efficiency), (loss, clipped), rate, norm, scale in zip(
            self._steps, summed.tolist(), rates, norms, scales, strict=True
        ):
            line = {
                "step": step,
                "samples": samples,
                "loss": _digits(loss),
                "lr": _digits(rate),
                "grad_norm": _digits(norm) if math.isfinite(norm) else None,
                "clipped": round(clipped / self._world.size, 6),
                "step_ms": round(step_ms, 3),
                "load_efficiency": round(load_efficiency, 4),
                **({} if scale is None else {"loss_scale": scale}),
            }
            if self._file:
                self._file.write(json.dumps(line) + "\n")
            if not math.isfinite(loss):
                raise RunError(f"the loss of step {step} is {loss}; {self._remedy}")
            self.last_loss = loss
        if self._file:
            self._file.flush()
        self._steps = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


def _read(values: list[Any]) -> list[Any]:
    """Values of one kind, tensors brought to the host at once."""
    return torch.stack(values).tolist() if isinstance(values[0], torch.Tensor) else values


def _digits(value: float) -> float:
    """Nine significant digits: what a 32-bit float holds, exactly."""
    return float(f"{value:.9g}")
