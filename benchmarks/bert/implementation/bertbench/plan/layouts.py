"""List every layout that a system's GPUs allow, with the fullest GPU's memory and the least time of a step.

The times are lower bounds at the data sheets' rates (layout_cost.py): they compare layouts, and predict no time.
"""

from collections.abc import Iterator
from itertools import product
from operator import attrgetter
from typing import NamedTuple

from bertbench.common.json_object import JsonObject
from bertbench.common.section import Section
from bertbench.config import System
from bertbench.config.layout import Layout, Parallel, bubble_share
from bertbench.config.layout_rules import SPLIT_MODEL_VALUES, layout_fits
from bertbench.plan.layout_cost import StepSeconds, step_seconds
from bertbench.plan.memory import capacity_gb, needed_gb

_REPLACEMENTS: dict[str, object] = {
    "clip.mode": "after",
    "communication.compression": "none",
    "precision.compute": "bf16",
    "precision.residual": "fp32",
    "optimizer.sharded": False,
    "optimizer.impl": "torch",
}
"""What a split model gets instead of a value that it doesn't allow."""
_OFF_AND_ON = (False, True)
_VIRTUAL_STAGES = (1, 2, 4)
_CAVEAT = (
    "least ms is a bound: the small products of a high tensor are slower, so of close rows prefer the lower tensor"
)


class Outlook(NamedTuple):
    """The memory and the least time that one layout would need."""

    system: System
    memory_gb_per_gpu: float
    """GB (10^9 bytes) on the fullest GPU."""
    seconds: StepSeconds

    @property
    def bubble(self) -> float:
        """Return the share of time that ranks of a pipeline wait for other stages, if all stages are equal."""
        layout = self.system.layout
        return bubble_share(layout.pipeline, self.system.parts, layout.virtual_stages)

    @property
    def fits(self) -> bool:
        """Return whether a GPU has that much memory; true if the system file doesn't state its memory."""
        return self.memory_gb_per_gpu <= capacity_gb(self.system)


def outlooks(system: System) -> list[Outlook]:
    """Return the fastest layout that fits, for each pair of tensor and pipeline sizes and full sharding; best first.

    If none fits, take the one that needs the least memory. Raises ConfigError if the GPUs' rates aren't known.
    """
    best: dict[tuple[Layout, bool], Outlook] = {}
    for candidate in candidates(system):
        outlook = Outlook(candidate, needed_gb(candidate), step_seconds(candidate))
        sizes = candidate.layout._replace(virtual_stages=1, sequence=False)
        key = sizes, candidate.parallel.fully_shard
        if key not in best or _rank(outlook) < _rank(best[key]):
            best[key] = outlook
    return sorted(best.values(), key=_rank)


def _rank(outlook: Outlook) -> tuple[bool, float]:
    """Return the sort key of a layout: first those that fit, by time; then the others, by memory."""
    return not outlook.fits, outlook.seconds.total if outlook.fits else outlook.memory_gb_per_gpu


def candidates(system: System) -> Iterator[System]:
    """Yield the same work in every possible layout: sizes and parts in powers of two.

    Settings that a split model can't have are replaced in its layouts only. Without a replacement, as for
    `optimizer.name` muon, there are no such layouts.
    """
    data = system.data.model_copy(update={"global_batch_size": system.global_batch_size, "local_batch": None})
    powers = [2**power for power in range(system.world_size.bit_length())]
    for tensor, pipeline, parts in product(powers, powers, powers):
        data_parallel = system.world_size // (tensor * pipeline)
        if data_parallel == 0 or system.global_batch_size % (data_parallel * parts):
            continue
        microbatches = 1 if pipeline == 1 else parts
        accumulated = parts if pipeline == 1 else 1
        changes: dict[str, Section] = {"data": data.model_copy(update={"gradient_accumulation_steps": accumulated})}
        for recompute, sequence, fully_shard, virtual_stages in product(
            _OFF_AND_ON, _OFF_AND_ON, _OFF_AND_ON, _VIRTUAL_STAGES
        ):
            parallel = Parallel(
                tensor=tensor,
                sequence=sequence,
                pipeline=pipeline,
                microbatches=microbatches,
                virtual_stages=virtual_stages,
                schedule="1f1b" if virtual_stages == 1 else "interleaved",
                recompute=recompute,
                fully_shard=fully_shard,
            )
            sections: dict[str, Section] = {**changes, "parallel": parallel}
            candidate = _with_possible_settings(system.model_copy(update=sections))
            if layout_fits(candidate):
                yield candidate


def _with_possible_settings(system: System) -> System:
    """Return a candidate in which settings that its split model can't have are replaced."""
    if not system.parallel.splits:
        return system
    for setting, value in _REPLACEMENTS.items():
        if _value_of(system, setting) not in SPLIT_MODEL_VALUES[setting]:
            system = _changed(system, setting, value)
    if system.compute.compile == "graphs":
        system = _changed(system, "compute.compile", "default")
    if system.compute.compile == "default" and system.parallel.tensor > 1:
        system = _changed(system, "compute.compile", "none")
    return system


def _value_of(system: System, setting: str) -> object:
    return attrgetter(setting)(system)


def _changed(system: System, setting: str, value: object) -> System:
    section, key = setting.split(".")
    changed = getattr(system, section).model_copy(update={key: value})
    return system.model_copy(update={section: changed})


def layout_listing(asked: System) -> tuple[JsonObject, list[str]]:
    """Return a system's layouts for `estimate --layouts`, as JSON and as a table; nothing if there are none.

    Raises ConfigError as `outlooks` does.
    """
    ranked = outlooks(asked)
    if not ranked:
        return {}, []
    best = _settings(ranked[0].system, asked)
    lines = [*_table(ranked), _CAVEAT, f"best: {best}"]
    return {"layouts": [_as_json(outlook) for outlook in ranked], "best": best}, lines


def _as_json(outlook: Outlook) -> JsonObject:
    system = outlook.system
    parallel, layout = system.parallel, system.layout
    return {
        **layout._asdict(),
        "schedule": parallel.schedule if layout.pipeline > 1 else None,
        "parts": system.parts,
        "recompute": parallel.recompute,
        "fully_shard": parallel.fully_shard,
        "memory_gb_per_gpu": round(outlook.memory_gb_per_gpu, 2),
        "fits": outlook.fits,
        "least_step_ms": round(1e3 * outlook.seconds.total, 2),
        "least_seconds": {part: round(value, 5) for part, value in vars(outlook.seconds).items()},
        "bubble": round(outlook.bubble, 4),
    }


def _table(ranked: list[Outlook]) -> list[str]:
    table = [
        f"{'data':>6}{'tensor':>8}{'pipeline':>10}{'virtual':>9}{'parts':>7}  {'':<22}{'GB per GPU':>10}"
        f"{'least ms':>10}{'bubble':>9}"
    ]
    for outlook in ranked:
        layout, seconds = outlook.system.layout, outlook.seconds
        parallel = outlook.system.parallel
        marks = [name for name in ("sequence", "recompute", "fully_shard") if getattr(parallel, name)]
        table.append(
            f"{layout.data:>6}{layout.tensor:>8}{layout.pipeline:>10}{layout.virtual_stages:>9}"
            f"{outlook.system.parts:>7}  {', '.join(marks):<22}{outlook.memory_gb_per_gpu:>10.1f}"
            f"{1e3 * seconds.total:>10.1f}{outlook.bubble:>9.1%}"
            f"{'' if outlook.fits else '  too large'}"
        )
    return table


def _settings(system: System, asked: System) -> str:
    """Return the layout as settings, relative to the system file `asked`."""
    parallel = system.parallel.model_dump(exclude_defaults=True)
    settings = [f"parallel.{name}={str(value).lower()}" for name, value in parallel.items()]
    for name in (*_REPLACEMENTS, "compute.compile"):
        value = _value_of(system, name)
        if value != _value_of(asked, name):
            settings.append(f"{name}={str(value).lower()}")
    if system.data.gradient_accumulation_steps > 1:
        settings.append(f"data.gradient_accumulation_steps={system.data.gradient_accumulation_steps}")
    return " ".join(settings) or "data parallelism only"
