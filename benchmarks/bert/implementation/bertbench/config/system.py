"""A whole system file, validated: one machine, one run, and the numbers that follow from them."""

import math
from collections.abc import Iterator
from typing import Self

from pydantic import Field, model_validator

from bertbench.balance.cost import CostModel
from bertbench.balance.plan import VARYING, Balance
from bertbench.config.hardware import Hardware
from bertbench.config.layout import Layout
from bertbench.config.parallel import Parallel, misfit
from bertbench.config.section import Section
from bertbench.config.sections import (
    Checkpoint,
    Clip,
    Communication,
    Compute,
    Data,
    Evaluation,
    Finetune,
    Launch,
    Loss,
    Model,
    Optimizer,
    Precision,
    Schedule,
)
from bertbench.model.options import default_mode, wants_few_sizes
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
    source: str = ""
    """Where the hyper-parameters come from: a published result, or a reference convergence point."""
    scale_from_batch: int | None = Field(default=None, ge=1)
    """Global batch that `optimizer` and `schedule` were tuned at; they are scaled to this system's
    (config/scaling.py)."""
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
    checkpoint: Checkpoint = Checkpoint()
    precision: Precision = Precision()
    compute: Compute = Compute()
    finetune: Finetune = Finetune()
    parallel: Parallel = Parallel()

    @property
    def world_size(self) -> int:
        """Ranks of the whole run."""
        return self.hardware.number_of_nodes * self.launch.ranks_per_node

    @property
    def global_batch_size(self) -> int:
        """Samples of one optimizer step over all ranks."""
        return self.data.global_batch_size or (self.data.local_batch or 0) * self.layout.data

    @property
    def layout(self) -> Layout:
        """How the ranks share the model and the data."""
        parallel = self.parallel
        data = self.world_size // (parallel.tensor * parallel.pipeline)
        return Layout(data, parallel.tensor, parallel.pipeline, parallel.virtual_stages)

    @property
    def local_batch(self) -> int:
        """Samples of one optimizer step on one data-parallel rank: without `parallel`, on one rank."""
        return self.global_batch_size // self.layout.data

    @property
    def parts(self) -> int:
        """Forward and backward passes of one optimizer step on one rank."""
        return self.parallel.microbatches * self.data.gradient_accumulation_steps

    @property
    def balance(self) -> Balance:
        """How batches are drawn and dealt, with the cost of a sequence."""
        data, cost = self.data, self.data.cost
        return Balance(
            method=data.balance,
            cost=CostModel(cost.linear, cost.quadratic) if cost else CostModel.of_shape(self.model.shape()),
            deal=data.deal,
            equal_counts=data.equal_counts,
            strata_edges=data.strata_edges,
            row_length=self.model.max_positions,
        )

    @property
    def evaluation_interval(self) -> int:
        """Samples between evaluations."""
        return self.evaluation.interval_samples or mlperf_evaluation_interval(self.global_batch_size)

    @property
    def init_limit_minutes(self) -> int:
        """Longest untimed initialisation: 30 minutes closed, 4 hours open (MLPerf Training rules)."""
        return 30 if self.hardware.division == "closed" else 240

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

    @property
    def fills_batches(self) -> bool:
        """Whether batches are rounded up to few sizes (loading/filler.py)."""
        device, precision = self.launch.device, self.precision.compute
        mode = self.compute.compile or default_mode(device)
        return not self.parallel.splits and wants_few_sizes(device, precision, mode, self.model.hidden_size)

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
        if problem := misfit(self):
            raise ValueError(problem)
        ranks, batch = self.layout.data, self.global_batch_size
        if batch % ranks:
            below, above = batch - batch % ranks, batch - batch % ranks + ranks
            choices = f"{below} or {above}" if below else f"{above}"
            what = "ranks" if ranks == self.world_size else "data-parallel ranks"
            raise ValueError(
                f"global batch {batch} is not a multiple of {ranks} {what}; set data.local_batch, or choose {choices}"
            )
        parts = self.data.gradient_accumulation_steps
        if self.local_batch % parts:
            raise ValueError(
                f"local batch {self.local_batch} is not a multiple of data.gradient_accumulation_steps {parts}; "
                "choose a divisor of the local batch"
            )
        return self

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        method = self.data.balance
        if self.data.equal_counts and method == "packed":
            raise ValueError(
                "data.equal_counts is impossible with data.balance packed, whose rows hold different numbers of "
                "samples; choose planned"
            )
        if self.loss.normalize == "rank" and method in VARYING and not self.data.equal_counts:
            remedy = "choose planned with data.equal_counts" if method == "packed" else "set data.equal_counts"
            raise ValueError(
                f"loss.normalize rank takes the mean of the ranks' means, but data.balance {method} gives ranks "
                f"different numbers of samples; {remedy}, or loss.normalize global"
            )
        if list(self.data.strata_edges) != sorted(set(self.data.strata_edges)):
            raise ValueError(f"data.strata_edges {list(self.data.strata_edges)} must rise; sort them")
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
    def _scaling_is_adams(self) -> Self:
        if self.scale_from_batch is None:
            return self
        if self.optimizer.name != "adam":
            raise ValueError("scale_from_batch: the scaling rule holds for adam only; remove it, or use adam")
        largest = self.scale_from_batch / (1 - min(self.optimizer.beta1, self.optimizer.beta2))
        if self.global_batch_size > largest:
            raise ValueError(
                f"scale_from_batch {self.scale_from_batch}: at global batch {self.global_batch_size} a beta would be "
                f"negative; choose a global batch of at most {int(largest)}"
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

    @property
    def no_snapshots(self) -> str | None:
        """Why no snapshot can be taken, and what to do; None if one can."""
        if self.communication.compression == "powersgd":
            return (
                "a snapshot doesn't hold the errors that communication.compression powersgd carries from step to step; "
                "choose another compression"
            )
        if self.optimizer.impl == "apex":
            return "a snapshot doesn't hold the state of optimizer.impl apex; set optimizer.impl to torch"
        return None

    @model_validator(mode="after")
    def _snapshots_are_whole(self) -> Self:
        if self.checkpoint.every_steps is not None and self.no_snapshots is not None:
            raise ValueError(f"checkpoint.every_steps: {self.no_snapshots}, or set checkpoint.every_steps to null")
        return self
