"""Define a system: all settings of its file, where they come from, and the numbers that follow from them.

Nothing here checks whether settings go together: rules.py, layout_rules.py and closed.py do, when load.py reads a file.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr

from bertbench.balance.cost import CostModel
from bertbench.balance.plan import Balance
from bertbench.common.evaluation import mlperf_evaluation_interval
from bertbench.common.section import Count, Section, section_of
from bertbench.config.layout import Launch, Layout, Parallel
from bertbench.config.optimizer import Clip, Communication, LearningRate, OptimizerSettings, Schedule
from bertbench.config.sections import (
    Checkpoint,
    Compute,
    Data,
    Evaluation,
    Hardware,
    Loss,
    Model,
    Precision,
    Squad,
)
from bertbench.model.options import unchecked_mode, wants_few_sizes


class System(Section):
    """One system file. Derived numbers are properties: no file states what follows from other settings."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Name of the system: the file's name without .json."""
    description: str = ""
    """What this system is for, in a line."""
    source: str = ""
    """Where the hyper-parameters come from: a published result, or a reference convergence point."""
    task: Literal["pretrain", "squad"] = "pretrain"
    """What the model learns: `pretrain` for every command but `finetune squad`, which needs `squad`."""
    scale_from_batch: Count | None = None
    """Global batch size at which `optimizer` and `schedule` were tuned. They are scaled to this system's
    batch. State it where the file changes the batch of a recipe."""
    scale_rule: Literal["root", "linear"] | None = None
    """How `scale_from_batch` scales the learning rate: by the square root of the batches' ratio (`root`, the default),
    or by the ratio itself (`linear`)."""
    hardware: Hardware
    launch: Launch
    model: Model
    data: Data
    loss: Loss = Loss()
    optimizer: OptimizerSettings
    schedule: Schedule
    clip: Clip = Clip()
    communication: Communication = Communication()
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpoint = Checkpoint()
    precision: Precision = Precision()
    compute: Compute = Compute()
    squad: Squad = Squad()
    parallel: Parallel = Parallel()

    _path: str | None = PrivateAttr(default=None)
    _given: dict[str, str] = PrivateAttr(default_factory=dict)
    _stated: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def argument(self) -> str:
        """Return a command's name for this system: the path of its file, or its name if it comes with the project."""
        return self._path or self.name

    @property
    def given(self) -> Mapping[str, str]:
        """Return the settings that a user gave by hand, by dotted name, each with the option that gave it."""
        return self._given

    @property
    def stated(self) -> Mapping[str, Any]:
        """Return the settings that the system file, or a file that it extends, states: dotted name -> value."""
        return self._stated

    def from_origins(self, path: str | None, given: Mapping[str, str], stated: Mapping[str, Any]) -> Self:
        """Return this system with its origins: its path, if it isn't shipped, and its `given` and `stated` settings."""
        copy = self.model_copy()
        copy._path = path
        copy._given = dict(given)
        copy._stated = dict(stated)
        return copy

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """Return the GPUs' CUDA compute capability if `hardware.hw_notes` states it, as `config init` writes it."""
        match = re.search(r"compute capability (\d+)\.(\d+)", self.hardware.hw_notes)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def world_size(self) -> int:
        """Return the number of ranks in the whole run."""
        return self.hardware.number_of_nodes * self.launch.ranks_per_node

    @property
    def global_batch_size(self) -> int:
        """Return the number of samples per optimizer step, over all ranks."""
        if self.data.global_batch_size is not None:
            return self.data.global_batch_size
        local_batch = self.data.local_batch or 0  # a rule refuses a file without either
        return local_batch * self.layout.data

    @property
    def layout(self) -> Layout:
        """Return how the ranks share the model and the data."""
        parallel = self.parallel
        data = self.world_size // (parallel.tensor * parallel.pipeline)
        return Layout(data, parallel.tensor, parallel.pipeline, parallel.virtual_stages, parallel.sequence)

    @property
    def local_batch(self) -> int:
        """Return the number of samples per optimizer step on a data-parallel rank: without `parallel`, on any rank."""
        return self.global_batch_size // self.layout.data

    @property
    def parts(self) -> int:
        """Return the number of forward and backward passes per optimizer step on a rank."""
        return self.parallel.microbatches * self.data.gradient_accumulation_steps

    @property
    def clipped_parts(self) -> int:
        """Return how many parts of a rank's batch are clipped one by one; 1 if their sum is clipped."""
        clips_each = self.clip.parts == "each" and self.clip.mode in ("before", "bucket")
        return self.data.gradient_accumulation_steps if clips_each else 1

    @property
    def samples_per_pass(self) -> int:
        """Return the number of samples per forward and backward pass, if all ranks get the same number."""
        return self.local_batch // self.parts

    @property
    def balance(self) -> Balance:
        """Return how batches are drawn and assigned to ranks, with the cost of a sequence."""
        data = self.data
        return Balance(
            method=data.balance,
            cost=CostModel.of_shape(self.model.shape()),
            equal_counts=data.equal_counts,
            strata_edges=data.strata_edges,
            strata_quotas=data.strata_quotas,
            row_length=self.model.max_positions,
        )

    @property
    def evaluation_interval(self) -> int:
        """Return the number of training samples between evaluations."""
        return self.evaluation.interval_samples or mlperf_evaluation_interval(self.global_batch_size)

    @property
    def init_limit_minutes(self) -> int:
        """Return the longest untimed initialisation: 30 minutes closed, 4 hours open (MLPerf Training rules)."""
        return 30 if self.hardware.division == "closed" else 240

    @property
    def max_steps(self) -> int:
        """Return the number of optimizer steps after which the run gives up."""
        steps, most_samples = self.schedule.max_steps, self.evaluation.max_samples
        if most_samples is None:
            return steps
        return min(steps, -(-most_samples // self.global_batch_size))

    @property
    def learning_rate(self) -> LearningRate:
        """Return the schedule as a function of the step."""
        warmup = self.schedule.warmup_steps
        return LearningRate(
            base=self.optimizer.learning_rate,
            end=self.schedule.end_learning_rate,
            warmup_steps=warmup,
            start_warmup_step=self.schedule.start_warmup_step,
            decay_steps=self.schedule.decay_steps or self.schedule.max_steps,
            decay_from_step=warmup if self.schedule.decay_from == "warmup_steps" else 0,
            first_step=self.schedule.first_step,
        )

    @property
    def scales_loss(self) -> bool:
        """Return whether gradients pass through fp16, so that steps may overflow and be skipped."""
        return self.precision.compute == "fp16" or self.communication.compression == "fp16"

    @property
    def fills_batches(self) -> bool:
        """Return whether batches are rounded up to few sizes (loading/filler.py)."""
        device, precision = self.launch.device, self.precision.compute
        mode = unchecked_mode(self.compute.compile, device)
        return not self.parallel.splits and wants_few_sizes(device, precision, mode, self.model.hidden_size)

    def blocks(self, taken: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the steps between evaluations as (first, stop): every interval, rounded up to a whole step.

        A run resumed after `taken` steps starts with the block that ends there, because its evaluation may be due.
        """
        batch, interval = self.global_batch_size, self.evaluation_interval
        first = 0
        while first < self.max_steps:
            due_samples = (first * batch // interval + 1) * interval
            stop = min(-(-due_samples // batch), self.max_steps)
            if stop >= taken:
                yield first, stop
            first = stop


def setting_names(kind: type[Section] = System, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every setting."""
    for name, field in kind.model_fields.items():
        below = section_of(field)
        key = f"{prefix}{field.alias or name}"
        if below is None:
            yield key
        else:
            yield from setting_names(below, f"{key}.")


def scaled_to_its_batch(system: System) -> System:
    """Return the system with hyper-parameters scaled from the batch at which they were tuned to the system's own batch.

    Without `scale_from_batch`, they stay as they are. With k = batch / scale_from_batch, both rules divide steps by k,
    so that the schedule spans the same number of samples.

    - `root`, for Adam: rate times sqrt(k), 1 - beta times k, epsilon over sqrt(k) (Malladi et al. 2022, "On the SDEs
      and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287). Weight decay times sqrt(k), so that
      rate * decay summed over the run stays the same. The rules for decay and steps are our own.
    - `linear`, derived for SGD: rate times k (Goyal et al. 2017, arXiv 1706.02677), which keeps that sum, too.
    """
    if system.scale_from_batch is None:
        return system
    ratio = system.global_batch_size / system.scale_from_batch
    tuned, schedule = system.optimizer, system.schedule
    if system.scale_rule == "linear":
        rate_ratio = ratio
        scaled = {}
    else:
        rate_ratio = math.sqrt(ratio)
        scaled = {
            "beta1": 1 - (1 - tuned.beta1) * ratio,
            "beta2": 1 - (1 - tuned.beta2) * ratio,
            "epsilon": tuned.epsilon / rate_ratio,
            "weight_decay": tuned.weight_decay * rate_ratio,
        }
    optimizer = tuned.model_copy(update={"learning_rate": tuned.learning_rate * rate_ratio, **scaled})
    steps = {
        "max_steps": round(schedule.max_steps / ratio),
        "decay_steps": round((schedule.decay_steps or schedule.max_steps) / ratio),
        "warmup_steps": round(schedule.warmup_steps / ratio),
        "start_warmup_step": round(schedule.start_warmup_step / ratio),
        "end_learning_rate": schedule.end_learning_rate * rate_ratio,
    }
    # not scaled again later: the configuration that a run records is the one that it used
    used_up = {"scale_from_batch": None, "scale_rule": None}
    return system.model_copy(update={"optimizer": optimizer, "schedule": schedule.model_copy(update=steps), **used_up})
