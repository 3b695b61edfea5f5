"""Build the settings that a trainer reads as plain values: a rented GPU may come with torch, but no pydantic.

`config/` validates users' files; these settings don't come from one. If a trainer reads a field that is missing here,
`gpu_check.sh` fails on a CPU too (tests/bench/test_gpu_check.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast

from bertbench.model.options import CompileMode, PrecisionName, default_mode, wants_few_sizes
from bertbench.optim.options import ClipMode, Implementation, OptimizerName, OptimizerOptions, ReduceOptions
from bertbench.optim.schedule import Schedule

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.model.shape import BertShape

_RATE = 1e-2  # LAMB: a hundredth of a matrix's norm a step, enough to learn in 300 steps
_WARMUP_STEPS = 10


class Choice(NamedTuple):
    """The settings in which the check's trainers differ."""

    optimizer: OptimizerName = "lamb"
    impl: Implementation = "torch"
    sharded: bool = False
    precision: PrecisionName = "fp32"
    compile: CompileMode | None = "none"
    clip: ClipMode = "after"
    accumulation: int = 1

    @property
    def name(self) -> str:
        """Return the choice in words."""
        words = [self.optimizer, self.impl, self.precision, f"compile {self.compile or 'default'}", f"clip {self.clip}"]
        words += ["sharded"] * self.sharded + [f"{self.accumulation} parts"] * (self.accumulation > 1)
        return ", ".join(words)


def plain_system(shape: BertShape, local_batch: int, steps: int, device: str, choice: Choice) -> System:
    """Return the settings of a short run, named as in a system file."""
    mode = choice.compile or default_mode(device)
    schedule = Schedule(_RATE, 0.0, min(_WARMUP_STEPS, steps), 0, 2 * steps)
    settings = SimpleNamespace(
        local_batch=local_batch,
        max_steps=steps,
        learning_rate=schedule,
        scales_loss=choice.precision == "fp16",
        fills_batches=wants_few_sizes(device, choice.precision, mode, shape.hidden_size),
        model=SimpleNamespace(
            checkpoint=None, shape=lambda: shape, max_positions=shape.max_positions, vocab_size=shape.vocab_size
        ),
        data=SimpleNamespace(gradient_accumulation_steps=choice.accumulation),
        optimizer=SimpleNamespace(
            name=choice.optimizer,
            impl=choice.impl,
            sharded=choice.sharded,
            ema_decay=None,
            options=lambda: OptimizerOptions(choice.optimizer),
        ),
        clip=SimpleNamespace(mode=choice.clip, max_norm=1.0),
        communication=SimpleNamespace(options=ReduceOptions, compression="none", bucket_mb=None, hierarchical=False),
        precision=SimpleNamespace(compute=choice.precision, residual="fp32", initial_loss_scale=2.0**16),
        compute=SimpleNamespace(compile=choice.compile),
        parallel=SimpleNamespace(recompute=False),
        sync=SimpleNamespace(method="every_step", outer=None, delay=0),
        launch=SimpleNamespace(rank_speeds=None),
    )
    return cast("System", settings)
