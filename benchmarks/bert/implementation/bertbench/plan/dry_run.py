"""Do a dry run: what a rank holds, sends and computes, how long the run will take, and what would stop it."""

import math
import shlex
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from bertbench.checkpoint.start import check_weights
from bertbench.common.errors import BertbenchError, ConfigError
from bertbench.common.paths import data_path
from bertbench.config import System
from bertbench.config.given import check_given
from bertbench.config.layout import vocabulary_rows
from bertbench.config.optimizer import GRADIENT_BYTES
from bertbench.data.store.dataset import Dataset
from bertbench.gradients.buckets import backward_order, bucket_table, owned
from bertbench.gradients.gradient_sum import ELEMENT_SUMS
from bertbench.loading.batch import synthetic
from bertbench.loading.inputs import missing_inputs, open_data, open_split
from bertbench.model.bert import Bert
from bertbench.plan.estimate import Estimate, estimate_run, trains_bert_large
from bertbench.plan.layout_cost import sent_bytes
from bertbench.plan.memory import capacity_gb, memory_gb, sent_copy_bytes, stage_parameters, state_bytes
from bertbench.plan.planned_steps import PLAN, FirstSteps, first_steps
from bertbench.plan.step_load import load_of

_GB = 1e9


class CountedRank(NamedTuple):
    """What one rank holds and sends."""

    parameters: int
    bucket_elements: tuple[int, ...]
    """Elements of each gradient bucket, in the order of reduction."""
    optimizer_bytes: int
    bytes_per_step: int
    """The bytes of gradients that the rank sums with other ranks in a step."""


class DryRun(NamedTuple):
    """What `bertbench plan` prints about one rank of a system."""

    system: System
    rank: int
    counted: CountedRank
    steps: FirstSteps
    memory_gb: dict[str, float]
    """GB (10^9 bytes) by what they hold, at the moment when most memory is in use."""
    sent_bytes: dict[str, int]
    """Bytes that the rank sends in a step, by dimension of the layout, if all its parts have the largest size."""
    evaluation_steps: list[int]
    """The steps after which the run evaluates, up to its limit of steps."""
    estimate: Estimate | None
    """None for models other than BERT-Large, which all published results train."""
    problems: list[str]

    @property
    def memory_gb_per_gpu(self) -> float:
        """Return the most GB in use at a time, during a backward pass."""
        return sum(self.memory_gb.values())

    @property
    def expected_minutes(self) -> float | None:
        """Return the time to train after published results; None if there are none for this model and accelerator."""
        return None if self.estimate is None else self.estimate.minutes

    @property
    def layers(self) -> int:
        """Return the layers of this rank's stages."""
        return self.system.model.layers // self.system.layout.pipeline

    @property
    def word_rows(self) -> range:
        """Return the rows of the word embeddings that this rank holds."""
        layout = self.system.layout
        place = layout.coordinate(self.rank)
        vocabulary = self.system.model.vocab_size
        if self.system.parallel.fully_shard:
            return vocabulary_rows(vocabulary, layout.data, place.data)
        if place.pipeline not in (0, layout.pipeline - 1):
            return range(0)
        return vocabulary_rows(vocabulary, layout.tensor, place.tensor)

    @property
    def capacity_gb(self) -> float | None:
        """Return a GPU's memory according to the system file; None for a CPU, and if the file doesn't state it."""
        capacity = capacity_gb(self.system)
        is_known = self.system.launch.device == "cuda" and math.isfinite(capacity)
        return capacity if is_known else None


def dry_run(system: System, rank: int = 0) -> DryRun:
    """Do a dry run of one rank, on any machine: memory, bytes, load and problems, as `bertbench plan` prints them.

    If data is missing, the plan lists that as a problem and uses Wikipedia's lengths.

    Raises ConfigError if there is no such rank, or if no step can be planned.
    """
    check_given(system, PLAN)
    if not 0 <= rank < system.world_size:
        raise ConfigError(f"--rank {rank}: {system.name} has ranks 0 to {system.world_size - 1}; choose one of them")
    problems, training = _missing(system)
    steps = first_steps(system, rank, training)
    counted = count_rank(system, rank)
    if system.parallel.splits:
        largest = load_of(system).largest_simulated_part
        memory = memory_gb(system, largest)
        sent_tokens = round(system.parts * largest.tokens)
        sent_masked = round(system.parts * largest.masked)
    else:
        memory = memory_gb(system, steps.largest_part_in_run) | {"optimizer": counted.optimizer_bytes / _GB}
        sent_tokens = sent_masked = 0  # ranks that hold the whole model send only gradients
    estimate = estimate_run(system) if trains_bert_large(system) else None
    return DryRun(
        system=system,
        rank=rank,
        counted=counted,
        steps=steps,
        memory_gb=memory,
        sent_bytes=sent_bytes(system, system.layout.coordinate(rank), sent_tokens, sent_masked),
        evaluation_steps=[stop for _, stop in system.blocks()],
        estimate=estimate,
        problems=problems + steps.problems + _too_large(system, memory) + _too_long(system, estimate),
    )


def count_rank(system: System, rank: int) -> CountedRank:
    """Count for rank `rank`; a part of a split model counts as one bucket."""
    if system.parallel.splits:
        shape = system.model.shape()
        held = stage_parameters(shape, system.layout, system.layout.coordinate(rank))
        if system.parallel.fully_shard:
            held //= system.layout.data
        return CountedRank(
            parameters=held,
            bucket_elements=(held,),
            optimizer_bytes=state_bytes(system.optimizer, shape, held),
            bytes_per_step=GRADIENT_BYTES * held,
        )
    compression = system.communication.compression
    elements = [list(map(math.prod, bucket)) for bucket in _buckets(system)]
    bucket_elements = tuple(map(sum, elements))
    sharing = system.world_size if system.optimizer.sharded else 1
    slice_number = rank % sharing
    held = sum(owned(bucket, sharing, slice_number) for bucket in elements)
    state = state_bytes(system.optimizer, system.model.shape(), held)
    parameters = sum(bucket_elements)
    return CountedRank(
        parameters=parameters,
        bucket_elements=bucket_elements,
        optimizer_bytes=state + sent_copy_bytes(parameters, compression),
        bytes_per_step=ELEMENT_SUMS[compression].element_bytes * parameters,
    )


def _buckets(system: System) -> list[list[tuple[int, ...]]]:
    """Return the shapes of the gradients in each bucket that a backward pass fills.

    The order of gradients depends only on the model's structure, so a narrow model is enough to find it.
    """
    shape = system.model.shape()
    narrow = Bert(replace(shape, vocab_size=8, hidden_size=shape.attention_heads, feed_forward_size=1))
    with torch.device("meta"):
        full = Bert(shape)
    batch = synthetic(1, 8, 8, torch.Generator().manual_seed(1))

    def backward() -> None:
        scores = narrow(batch.inputs)
        (scores.masked_lm_MV.sum() + scores.next_sentence_S2.sum()).backward()

    in_full: dict[nn.Parameter, nn.Parameter] = dict(zip(narrow.parameters(), full.parameters(), strict=True))
    order = [in_full[parameter] for parameter in backward_order(narrow, backward)]
    shapes = []
    for bucket in bucket_table(order, system.communication.bucket_mb, system.communication.buckets):
        shapes.append([tuple(parameter.shape) for parameter in bucket])
    return shapes


def _missing(system: System) -> tuple[list[str], Dataset | None]:
    """Return what the run would not find or couldn't use, and its training data if it exists."""
    problems = missing_inputs(system)
    training = None
    checkpoint = system.model.checkpoint
    try:
        training = open_split(system, "train")
        if checkpoint is not None and data_path(checkpoint).exists():
            check_weights(system, data_path(checkpoint))
    except BertbenchError as error:
        problems.append(str(error))
    try:
        open_split(system, "eval")
        if training is not None:
            open_data(system)
    except BertbenchError as error:
        problems.append(str(error))
    return list(dict.fromkeys(problems)), training  # without repetitions: a missing file can't be opened either


def _too_large(system: System, memory: dict[str, float]) -> list[str]:
    """Return a message if the system doesn't fit its GPUs, otherwise nothing."""
    needed, capacity = sum(memory.values()), capacity_gb(system)
    # NVIDIA's GB are closer to 2^30 bytes; the difference to 10^9, 7 %, is for CUDA, NCCL and gaps between tensors
    if system.launch.device != "cuda" or needed <= capacity:
        return []
    return [
        f"each GPU needs {needed:.0f} GB ({memory['activations']:.0f} GB for activations) but has {capacity:g} GB; "
        "raise data.gradient_accumulation_steps, or split the model: `bertbench estimate "
        f"{shlex.quote(system.argument)} --layouts` lists ways"
    ]


def _too_long(system: System, estimate: Estimate | None) -> list[str]:
    """Return a message for each of the system's limits that would end a run of the expected length."""
    if estimate is None:
        return []
    problems = []
    granted_minutes = system.launch.walltime_minutes
    if estimate.minutes is not None and estimate.minutes > granted_minutes:
        problems.append(
            f"a run is expected to take {estimate.minutes:.0f} minutes, but launch.walltime_minutes is "
            f"{granted_minutes}; raise it"
        )
    most_samples = system.max_steps * system.global_batch_size
    if most_samples < estimate.samples.number:
        problems.append(
            f"the run stops after {most_samples:,} samples, but is expected to need {estimate.samples.number:,.0f} to "
            "reach the target; raise schedule.max_steps and evaluation.max_samples"
        )
    return problems
