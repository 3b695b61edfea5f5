"""metrics.jsonl: one line a step with loss, learning rate, gradient norm, time and load balance.

Losses and norms stay on the device until `flush`, where one all-reduce brings the global losses together. On a GPU
that happens at evaluations only, so nothing waits for the device in between; on a CPU it happens every step.
"""

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import torch

from bertbench.errors import RunError
from bertbench.world import World

_FIELDS = ("step", "samples", "loss", "lr", "grad_norm", "step_ms", "load_efficiency")


class Metrics:
    """Collects steps; rank 0 writes them."""

    def __init__(self, path: Path | None, world: World) -> None:
        self._world = world
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None
        self._losses: list[torch.Tensor] = []
        self._norms: list[torch.Tensor] = []
        self._rows: list[dict[str, float]] = []
        self.last_loss = math.nan

    def record(
        self,
        step: int,
        samples: int,
        loss: torch.Tensor,
        lr: float,
        grad_norm: torch.Tensor,
        step_ms: float,
        load_efficiency: float,
    ) -> None:
        """One step: `loss` is this rank's share, the shares of all ranks add up to the loss.

        Raises RunError as `flush` does.
        """
        self._losses.append(loss)
        self._norms.append(grad_norm)
        row = {"step": step, "samples": samples, "lr": lr, "step_ms": round(step_ms, 3)}
        self._rows.append({**row, "load_efficiency": round(load_efficiency, 4)})
        if self._world.device.type == "cpu":
            self.flush()

    def flush(self) -> None:
        """Write the steps recorded since the last flush; every rank must call it after the same step.

        Raises RunError on all ranks if a loss is not finite.
        """
        if not self._rows:
            return
        losses = self._world.sum(torch.stack(self._losses)).tolist()
        norms = torch.stack(self._norms).tolist()
        for row, loss, norm in zip(self._rows, losses, norms, strict=True):
            if self._file:
                line = {**row, "loss": _digits(loss), "lr": _digits(row["lr"]), "grad_norm": _digits(norm)}
                self._file.write(json.dumps({field: line[field] for field in _FIELDS}) + "\n")
            if not math.isfinite(loss):
                raise RunError(
                    f"the loss of step {row['step']} is {loss}; "
                    "lower optimizer.learning_rate or lengthen schedule.warmup_steps"
                )
        if self._file:
            self._file.flush()
        self.last_loss = losses[-1]
        self._losses, self._norms, self._rows = [], [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


def _digits(value: float) -> float:
    """Nine significant digits: what a 32-bit float holds, exactly."""
    return float(f"{value:.9g}")
