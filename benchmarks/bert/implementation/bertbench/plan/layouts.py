"""Every layout that a system's GPUs could take: memory of the fullest GPU and seconds of a step, the best one named."""

import math
import re
from typing import NamedTuple

from bertbench.common.json_object import JsonObject
from bertbench.config import System
from bertbench.config.layout import Layout
from bertbench.plan import parallel_theory as theory
from bertbench.plan.activations import model_keeps
from bertbench.plan.counted_rank import state_bytes
from bertbench.plan.layout_time import StepSeconds, candidates, load_of, step_seconds, utilisation
from bertbench.plan.step_time import gpu_of

_GB = 1e9
_WEIGHT_BYTES = 4


class Outlook(NamedTuple):
    """What one layout would need and take."""

    system: System
    memory_gb_per_gpu: float
    """Bytes / 10^9 on the fullest GPU."""
    seconds: StepSeconds
    utilisation: float
    """Model FLOP utilisation."""

    @property
    def fits(self) -> bool:
        """Whether a GPU has as much; true where the system file doesn't say."""
        return self.memory_gb_per_gpu <= capacity_gb(self.system)


def outlooks(system: System) -> list[Outlook]:
    """For each pair of tensor and pipeline sizes, and for full sharding, the fastest way that fits; best first.

    Where none fits, the one that needs least memory. Raises ConfigError if the GPUs are of no kind that is calibrated.
    """
    best: dict[tuple[Layout, bool], Outlook] = {}
    gpu = gpu_of(system)
    for candidate in candidates(system):
        seconds = step_seconds(candidate, gpu)
        share = utilisation(candidate, gpu, seconds.total)
        found = Outlook(candidate, needed_gb(candidate), seconds, share)
        key = (candidate.layout._replace(virtual_stages=1, sequence=False), candidate.parallel.fully_shard)
        if key not in best or _rank(found) < _rank(best[key]):
            best[key] = found
    return sorted(best.values(), key=_rank)


def capacity_gb(system: System) -> float:
    """Return the memory of a GPU that the system file gives; infinite if it gives none."""
    match = re.match(r"([\d.]+) *G", system.hardware.accelerator_memory_capacity)
    return float(match[1]) if match else math.inf


def listing(asked: System) -> tuple[JsonObject, list[str]]:
    """Return what `estimate --layouts` prints of a system's layouts: JSON, and a table; or nothing.

    Raises what `outlooks` raises.
    """
    if not (found := outlooks(asked)):
        return {}, []
    best = _settings(found[0].system, asked)
    return {"layouts": [_as_json(one) for one in found], "best": best}, [*_table(found), f"best: {best}"]


def _as_json(one: Outlook) -> JsonObject:
    parallel, layout = one.system.parallel, one.system.layout
    return {
        **layout._asdict(),
        "schedule": parallel.schedule if layout.pipeline > 1 else None,
        "parts": one.system.parts,
        "recompute": parallel.recompute,
        "fully_shard": parallel.fully_shard,
        "memory_gb_per_gpu": round(one.memory_gb_per_gpu, 2),
        "fits": one.fits,
        "step_ms": round(1e3 * one.seconds.total, 2),
        "seconds": {part: round(value, 5) for part, value in vars(one.seconds).items()},
        "model_flop_utilisation": round(one.utilisation, 4),
    }


def _table(found: list[Outlook]) -> list[str]:
    table = [
        f"{'data':>6}{'tensor':>8}{'pipeline':>10}{'virtual':>9}{'parts':>7}  {'':<22}{'GB a GPU':>10}{'step ms':>10}"
        f"{'MFU':>8}{'bubble':>9}"
    ]
    for one in found:
        parallel, layout = one.system.parallel, one.system.layout
        marks = [name for name in ("sequence", "recompute", "fully_shard") if getattr(parallel, name)]
        table.append(
            f"{layout.data:>6}{layout.tensor:>8}{layout.pipeline:>10}{layout.virtual_stages:>9}{one.system.parts:>7}  "
            f"{', '.join(marks):<22}{one.memory_gb_per_gpu:>10.1f}{1e3 * one.seconds.total:>10.1f}"
            f"{one.utilisation:>8.1%}{one.seconds.bubble / one.seconds.total:>9.1%}"
            f"{'' if one.fits else '  too large'}"
        )
    return table


def _settings(system: System, asked: System) -> str:
    """Return the layout as one would set it in the file of `asked`."""
    parallel = system.parallel.model_dump(exclude_defaults=True)
    given = [f"parallel.{name}={str(value).lower()}" for name, value in parallel.items()]
    if system.clip != asked.clip:
        given.append(f"clip.mode={system.clip.mode}")
    if system.communication != asked.communication:
        given.append(f"communication.compression={system.communication.compression}")
    if system.optimizer.sharded != asked.optimizer.sharded:
        given.append("optimizer.sharded=false")
    if system.data.gradient_accumulation_steps > 1:
        given.append(f"data.gradient_accumulation_steps={system.data.gradient_accumulation_steps}")
    return " ".join(given) or "data parallelism alone"


def memory_gb(system: System, part: tuple[float, float] | None = None) -> dict[str, float]:
    """Return bytes / 10^9 of the fullest stage at its worst moment, by what they hold.

    `part`: tokens of the largest microbatch of a training step, and pairs of tokens in its sequences (default: those of
    Wikipedia's lengths). A whole model's warm-up, whose sequences all have full length, may need more than training.
    """
    if part is None:
        load = load_of(system)
        part = load.most_tokens, load.most_pairs
    stages = {0, system.layout.pipeline - 1}
    return max((_memory(system, place, part) for place in stages), key=lambda parts: sum(parts.values()))


def needed_gb(system: System) -> float:
    """Return all bytes / 10^9 of the fullest stage."""
    return sum(memory_gb(system).values())


def _rank(one: Outlook) -> tuple[bool, float]:
    return (not one.fits, one.seconds.total if one.fits else one.memory_gb_per_gpu)


def _memory(system: System, place: int, part: tuple[float, float]) -> dict[str, float]:
    layout, shape, parallel = system.layout, system.model.shape(), system.parallel
    held = theory.stage_parameters(shape, layout, place)
    memory = {}
    if parallel.fully_shard:
        held //= layout.data
        ends = theory.embedding_parameters(shape) + theory.head_parameters(shape)
        # one unit with its gradient, and the next one that is gathered ahead
        memory["gathered"] = 3 * _WEIGHT_BYTES * max(ends, theory.layer_parameters(shape)) / _GB
    weights = _WEIGHT_BYTES * held / _GB
    ranks = layout.data if system.optimizer.sharded else 1
    memory["warm_up_copy"] = weights  # warm-up puts the weights back
    activations = activation_bytes(system, part, place) / _GB
    if not parallel.splits:
        length = shape.max_positions
        tokens = system.samples_per_pass * length
        warm_up = activation_bytes(system, (tokens, tokens * length), place) / _GB
        if weights + warm_up > activations:
            activations = warm_up
        else:
            del memory["warm_up_copy"]
    state = state_bytes(system.optimizer, shape, held // ranks, (0, ranks))
    return {
        "weights": weights,
        "gradients": weights,
        "optimizer": state / _GB,
        **memory,
        "activations": activations,
    }


def activation_bytes(system: System, part: tuple[float, float], place: int = 0) -> float:
    """Return the bytes of all microbatches that a stage has begun and not ended, at the worst moment."""
    layout, parallel = system.layout, system.parallel
    tokens, _ = part
    layer, embeddings, heads = model_keeps(system, layout.tensor, parallel.sequence)
    of_layer = layer.bytes(*part)
    layers = system.model.layers / layout.stages  # of one stage
    kept = 0.0
    if parallel.recompute:
        kept, of_layer = of_layer, _WEIGHT_BYTES * tokens * system.model.hidden_size / layout.token_shares
    if place == 0:
        kept += embeddings.bytes(*part) * _begun(system, 0)
    if place == layout.pipeline - 1:
        kept += heads.bytes(*part)
    return kept + layers * of_layer * _begun(system, place)


def _begun(system: System, place: int) -> int:
    """Forward passes of stages that wait for their backward pass (arXiv 2104.04473, sections 2.2.1 and 2.2.2)."""
    layout, parts = system.layout, system.parts
    if layout.pipeline == 1:
        return 1
    if system.parallel.schedule == "gpipe":
        return parts
    after = layout.pipeline - 1 - place
    if layout.virtual_stages == 1:
        return min(parts, after + 1)
    return min(parts * layout.virtual_stages, (layout.virtual_stages - 1) * layout.pipeline + 2 * after + 1)
