"""Write a dry run as JSON and as lines of text, for `bertbench plan`."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from bertbench.config import System
from bertbench.config.optimizer import GRADIENT_BYTES, ClipMode
from bertbench.plan.dry_run import DryRun
from bertbench.plan.planned_steps import PLANNED_STEPS

_MIB = 2**20
_GB = 1e9
_SHOWN_EVALUATIONS = 4
_CLIPPED: dict[ClipMode, str] = {
    "after": "the reduced gradient",
    "before": "every rank's gradient",
    "bucket": "every bucket of a rank's gradient",
}


def dry_run_json(plan: DryRun) -> dict[str, Any]:
    """Return a dry run as JSON: memory in GB, tokens and bytes of a step, and the problems found."""
    system = plan.system
    counted = plan.counted
    steps = plan.steps
    layout = system.layout
    return {
        "system": system.name,
        "gpus": system.world_size,
        "rank": plan.rank,
        "global_batch_size": system.global_batch_size,
        "layout": {
            **layout._asdict(), "coordinate": layout.coordinate(plan.rank)._asdict(), "grid": layout.lines(),
        },
        "sent_bytes_per_step": plan.sent_bytes,
        "parameters": counted.parameters,
        "layers": plan.layers,
        "word_rows": len(plan.word_rows),
        "memory_gb_per_gpu": round(plan.memory_gb_per_gpu, 3),
        "memory_capacity_gb": plan.capacity_gb,
        "memory_gb": {part: round(gb, 3) for part, gb in plan.memory_gb.items()},
        "bucket_elements": list(counted.bucket_elements),
        "clip_limit": system.clip.limit(len(counted.bucket_elements)),
        "bytes_per_step": counted.bytes_per_step,
        "lengths_from": steps.source,
        "load_efficiency": round(steps.load_efficiency, 4),
        "strata": _strata_json(plan),
        "tokens_per_step": {
            "mean": round(float(steps.tokens.mean()), 1), "least": int(steps.tokens.min()),
            "most": int(steps.tokens.max()),
        },
        "learning_rate_by_step": system.learning_rate.rates_by_step(system.schedule.max_steps),
        "evaluation_interval_samples": system.evaluation_interval,
        "evaluation_steps": plan.evaluation_steps,
        "expected_minutes": None if plan.expected_minutes is None else round(plan.expected_minutes, 3),
        "problems": plan.problems,
    }  # fmt: skip


def dry_run_lines(plan: DryRun) -> list[str]:
    """Return a dry run as text: one or more lines for each subject."""
    system = plan.system
    counted = plan.counted
    steps = plan.steps
    memory = ", ".join(f"{part.replace('_', ' ')} {gb:.2f}" for part, gb in plan.memory_gb.items())
    evaluations = ", ".join(map(str, plan.evaluation_steps[:_SHOWN_EVALUATIONS]))
    if len(plan.evaluation_steps) > _SHOWN_EVALUATIONS:
        evaluations += f", ... {plan.evaluation_steps[-1]}"
    lines = [
        f"{system.name}: rank {plan.rank} of {system.world_size:,}, global batch {system.global_batch_size:,}",
        *_grid(plan),
        f"memory      {_fit(plan)}: {memory}",
        f"tokens      {steps.tokens.min():,} to {steps.tokens.max():,} per step (mean {steps.tokens.mean():,.0f}); "
        f"load efficiency {steps.load_efficiency:.4f}, from {steps.source}, {PLANNED_STEPS} steps",
        *_strata_lines(plan),
        f"gradients   {counted.bytes_per_step:,} bytes per rank and step; {len(counted.bucket_elements)} buckets:",
        *(
            f"  {len(list(same)):>5} of {size:>12,} elements, {GRADIENT_BYTES * size / _MIB:.1f} MiB"
            for size, same in groupby(counted.bucket_elements)
        ),
        f"clipping    {_clipping(plan)}",
        f"rate        {_rates(system)}",
        f"evaluation  every {system.evaluation_interval:,} samples: after steps {evaluations}",
    ]
    if plan.expected_minutes is None:
        lines.append("walltime    no estimate: no published result has this model on these accelerators")
    else:
        lines.append(
            f"walltime    about {plan.expected_minutes:.3g} min expected, after published results; "
            f"launch.walltime_minutes is {system.launch.walltime_minutes}"
        )
    return [*lines, *(f"problem     {problem}" for problem in plan.problems or ["none found"])]


def _strata_json(plan: DryRun) -> dict[str, Any] | None:
    """Return edges and quotas of the strata, and quotas in proportion to the dataset; None without strata."""
    data, shares = plan.system.data, plan.steps.strata_shares
    if shares is None:
        return None
    return {"edges": data.strata_edges, "quotas": data.strata_quotas, "shares_of_batch": shares.round(3).tolist()}


def _strata_lines(plan: DryRun) -> list[str]:
    """Return a line that says how many samples of each stratum a rank draws; nothing without strata."""
    data, shares = plan.system.data, plan.steps.strata_shares
    if shares is None:
        return []
    lengths = f"of up to {_joined(data.strata_edges)} tokens"
    by_share = _joined(f"{share:.2f}" for share in shares)
    if data.strata_quotas is None:
        return [f"strata      {by_share} samples {lengths} per step, in proportion to the dataset"]
    quotas = _joined(data.strata_quotas)
    return [f"strata      {quotas} samples {lengths} per step; in proportion to the dataset it would be {by_share}"]


def _joined(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _clipping(plan: DryRun) -> str:
    """Return what is clipped, and to which norm."""
    clip, buckets = plan.system.clip, len(plan.counted.bucket_elements)
    limit = clip.limit(buckets)
    if limit is None:
        return "none"
    formula = f", {clip.max_norm:g} / sqrt({clip.root_of(buckets)})" if clip.mode == "bucket" else ""
    parts = plan.system.clipped_parts
    by_part = f", in each of {parts} parts separately" if parts > 1 else ""
    return f"{clip.mode}: {_CLIPPED[clip.mode]} to a norm of {limit:.4g}{formula}{by_part}"


def _rates(system: System) -> str:
    """Return the learning rate at the steps that define the schedule, and how the schedule counts steps."""
    schedule = system.learning_rate
    rates = [f"{rate:.3e} at step {step}" for step, rate in schedule.rates_by_step(system.schedule.max_steps).items()]
    counted = "s + 1" if schedule.first_step else "s"
    return (
        f"{', '.join(rates)}; step s, counted from 0, uses rate({counted}); the decay is counted from step "
        f"{schedule.decay_from_step} to {schedule.decay_steps}"
    )


def _fit(plan: DryRun) -> str:
    """Return how much memory a rank needs and, on GPUs, whether that fits."""
    needs = f"needs {plan.memory_gb_per_gpu:.2f} GB"
    if plan.system.launch.device != "cuda":
        return needs
    if plan.capacity_gb is None:
        return f"{needs}; the file doesn't say how much a GPU has (hardware.accelerator_memory_capacity)"
    fits = "fits in" if plan.memory_gb_per_gpu <= plan.capacity_gb else "doesn't fit in"
    return f"{fits} {plan.capacity_gb:g} GB, {needs}"


def _grid(plan: DryRun) -> list[str]:
    """Return the ranks of every stage and this rank's bytes by dimension; nothing if ranks don't share the model."""
    if not plan.system.parallel.splits:
        return []
    layout = plan.system.layout
    sent = ", ".join(f"{dimension} {size:,}" for dimension, size in plan.sent_bytes.items())
    return [
        f"layout      data {layout.data} x tensor {layout.tensor} x pipeline {layout.pipeline}; - joins "
        "tensor-parallel ranks, spaces separate data-parallel ranks:",
        *(f"  {line}" for line in layout.lines()),
        f"holds       {_holds(plan)}",
        f"sent        bytes per step: {sent}",
    ]


def _holds(plan: DryRun) -> str:
    """Return which part of a split model this rank holds, and the memory of its weights, gradients and optimizer."""
    system, counted = plan.system, plan.counted
    layout, model = system.layout, system.model
    held = f"{plan.layers} of {model.layers} layers"
    ranks_of_a_layer = layout.data if system.parallel.fully_shard else layout.tensor
    if ranks_of_a_layer > 1:
        held += f" shared by {ranks_of_a_layer} ranks"
    if plan.word_rows:
        held += f", {len(plan.word_rows):,} of {model.vocab_size:,} rows of the word embeddings"
    weights_gb = GRADIENT_BYTES * counted.parameters / _GB  # as much as their gradients, because both are fp32
    return (
        f"{counted.parameters:,} parameters ({held}): weights {weights_gb:.2f} GB, gradients {weights_gb:.2f} GB, "
        f"optimizer {counted.optimizer_bytes / _GB:.2f} GB"
    )
