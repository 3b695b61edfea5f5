"""A whole system file, validated: one machine, one run, and the numbers that follow from them."""

import math
from collections.abc import Iterator
from typing import Self

from pydantic import Field, model_validator

from bertbench.config.hardware import Hardware
from bertbench.config.section import Section
from bertbench.config.sections import (
    Clip,
    Communication,
    Data,
    Evaluation,
    Launch,
    Loss,
    Model,
    Optimizer,
    Precision,
    Schedule,
)
from bertbench.optim.schedule import Schedule as LearningRate


def mlperf_evaluation_interval(global_batch_size: int) -> int:
    """Samples between evaluations: floor(0.05 * (230.23 * GBS + 3,000,000) / 25,000) * 25,000.

    Source: MLPerf Training rules, BERT, evaluation frequency.
    """
    return math.floor(0.05 * (230.23 * global_batch_size + 3_000_000) / 25_000) * 25_000


class System(Section):
    """One system file. Derived numbers are properties: nothing that follows from something else is typed in."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Name of the system: the file's name without .json."""
    description: str = ""
    """What this system is for, in a line."""
    hardware: Hardware
    launch: Launch
    model: Model
    data: Data
    loss: Loss = Loss()
    optimizer: Optimizer
    schedule: Schedule
    clip: Clip = Clip()
    communication: Communication = Communication()
    evaluation: Evaluation = Evaluation()
    precision: Precision = Precision()

    @property
    def world_size(self) -> int:
        """Ranks of the whole run."""
        return self.hardware.number_of_nodes * self.launch.ranks_per_node

    @property
    def global_batch_size(self) -> int:
        """Samples of one optimizer step over all ranks."""
        return self.data.global_batch_size or (self.data.local_batch or 0) * self.world_size

    @property
    def local_batch(self) -> int:
        """Samples of one optimizer step on one rank."""
        return self.global_batch_size // self.world_size

    @property
    def evaluation_interval(self) -> int:
        """Samples between evaluations."""
        return self.evaluation.interval_samples or mlperf_evaluation_interval(self.global_batch_size)

    @property
    def max_steps(self) -> int:
        """Optimizer steps after which the run gives up."""
        limit = self.evaluation.max_samples
        return (
            self.schedule.max_steps
            if limit is None
            else min(self.schedule.max_steps, -(-limit // self.global_batch_size))
        )

    @property
    def learning_rate(self) -> LearningRate:
        """The schedule as a function of the step."""
        return LearningRate(
            base=self.optimizer.learning_rate,
            end=self.schedule.end_learning_rate,
            warmup_steps=self.schedule.warmup_steps,
            start_warmup_step=self.schedule.start_warmup_step,
            decay_steps=self.schedule.decay_steps or self.schedule.max_steps,
        )

    @property
    def scales_loss(self) -> bool:
        """Whether gradients pass through fp16, so that steps may overflow and be skipped."""
        return self.precision.compute == "fp16" or self.communication.compression == "fp16"

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Steps between evaluations as (first, stop): every interval, rounded up to a whole step, and at the limit."""
        batch, interval, first = self.global_batch_size, self.evaluation_interval, 0
        while first < self.max_steps:
            due = (first * batch // interval + 1) * interval
            stop = min(-(-due // batch), self.max_steps)
            yield first, stop
            first = stop

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        if (self.data.global_batch_size is None) == (self.data.local_batch is None):
            raise ValueError("data: give exactly one of global_batch_size and local_batch")
        ranks, batch = self.world_size, self.global_batch_size
        if batch % ranks:
            below, above = batch - batch % ranks, batch - batch % ranks + ranks
            choices = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"global batch {batch} is not a multiple of {ranks} ranks; set data.local_batch, or choose {choices}"
            )
        parts = self.data.gradient_accumulation_steps
        if self.local_batch % parts:
            raise ValueError(
                f"local batch {self.local_batch} is not a multiple of data.gradient_accumulation_steps {parts}; "
                "choose a divisor of the local batch"
            )
        return self

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        model, recipe = self.model, self.data.recipe
        if model.hidden_size % model.attention_heads:
            raise ValueError(
                f"model.hidden_size {model.hidden_size} is not a multiple of model.attention_heads "
                f"{model.attention_heads}; choose a multiple"
            )
        if recipe is not None and recipe.vocab_size > model.vocab_size:
            raise ValueError(
                f"data.recipe.vocab_size {recipe.vocab_size} is larger than model.vocab_size {model.vocab_size}; "
                "raise model.vocab_size to at least as much"
            )
        return self

    @model_validator(mode="after")
    def _division_allows(self) -> Self:
        if self.hardware.division == "closed" and self.optimizer.name != "lamb":
            raise ValueError(
                f"optimizer.name {self.optimizer.name} is not allowed in the closed division; use lamb, or set "
                "hardware.division to open"
            )
        if self.hardware.division == "closed" and self.clip.mode not in ("after", "before"):
            raise ValueError(
                f"clip.mode {self.clip.mode} is not allowed in the closed division; use after or before, or set "
                "hardware.division to open"
            )
        if self.launch.device == "cuda" and self.hardware.accelerators_per_node != self.launch.ranks_per_node:
            raise ValueError(
                f"launch.ranks_per_node {self.launch.ranks_per_node} differs from hardware.accelerators_per_node "
                f"{self.hardware.accelerators_per_node}; a CUDA system runs one rank a GPU, make them equal"
            )
        return self

    @model_validator(mode="after")
    def _communication_fits(self) -> Self:
        communication, impl = self.communication, self.optimizer.impl
        if communication.compression == "powersgd" and communication.hierarchical:
            raise ValueError(
                "communication.hierarchical true does nothing for communication.compression powersgd, which makes its "
                "own all-reduces; leave one of them out"
            )
        if communication.compression == "powersgd" and self.precision.compute == "fp16":
            raise ValueError(
                "communication.compression powersgd carries errors from step to step, and an overflow of "
                "precision.compute fp16 would never leave them; use bf16 or fp32"
            )
        if impl == "apex" and self.scales_loss:
            raise ValueError(
                "optimizer.impl apex can't skip steps without stopping the device, which fp16 gradients need; "
                "set optimizer.impl to torch, or use bf16"
            )
        if impl == "apex" and self.launch.device == "cpu":
            raise ValueError("optimizer.impl apex needs launch.device cuda; set optimizer.impl to torch")
        return self
