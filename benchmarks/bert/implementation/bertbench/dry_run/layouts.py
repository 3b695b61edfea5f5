"""Every layout that a system's GPUs could take: memory of the fullest GPU and seconds of a step, the best one named."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from bertbench.config import System
from bertbench.config.layout import Layout
from bertbench.config.parallel import Parallel
from bertbench.config.sections import Data
from bertbench.dry_run.activations import Kept, embeddings_keep, heads_keep, layer_keeps
from bertbench.dry_run.optimizer_state import state_bytes
from bertbench.forecast.layout import StepSeconds, candidates, load_of, step_seconds, utilisation
from bertbench.forecast.step import gpu_of
from bertbench.parallel import theory

_GB = 1e9
_WEIGHT_BYTES = 4


@dataclass(frozen=True)
class Outlook:
    """What one layout would need and take."""

    system: System
    memory_gb: dict[str, float]
    """Bytes / 10^9 by what they hold, on the fullest GPU."""
    seconds: StepSeconds
    utilisation: float
    """Model FLOP utilisation."""

    @property
    def memory_gb_per_gpu(self) -> float:
        """All of it."""
        return sum(self.memory_gb.values())

    @property
    def fits(self) -> bool:
        """Whether a GPU has as much; true where the system file doesn't say."""
        there = capacity_gb(self.system)
        return there is None or self.memory_gb_per_gpu <= there


def outlook(system: System) -> Outlook:
    """Of the layout that a system has; raises ConfigError if its GPUs are of no kind that is calibrated."""
    gpu = gpu_of(system)
    seconds = step_seconds(system, gpu)
    return Outlook(system, memory_gb(system), seconds, utilisation(system, gpu, seconds.total))


def outlooks(system: System) -> list[Outlook]:
    """For each pair of tensor and pipeline sizes, and for full sharding, the fastest way that fits; best first.

    Where none fits, the one that needs least memory. Raises what `outlook` raises.
    """
    best: dict[tuple[Layout, bool], Outlook] = {}
    for candidate in candidates(system):
        found = outlook(candidate)
        key = (candidate.layout._replace(virtual_stages=1, sequence=False), candidate.parallel.fully_shard)
        if key not in best or _rank(found) < _rank(best[key]):
            best[key] = found
    return sorted(best.values(), key=_rank)


def capacity_gb(system: System) -> float | None:
    """Memory of a GPU, as the system file tells."""
    match = re.match(r"([\d.]+) *G", system.hardware.accelerator_memory_capacity)
    return float(match[1]) if match else None


def as_json(one: Outlook) -> dict[str, Any]:
    """Return what `plan --layouts` and `predict --layouts` print of a layout."""
    parallel, layout = one.system.parallel, one.system.layout
    return {
        "data": layout.data,
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "schedule": parallel.schedule if layout.pipeline > 1 else None,
        "virtual_stages": layout.virtual_stages,
        "parts": one.system.parts,
        "sequence": parallel.sequence,
        "recompute": parallel.recompute,
        "fully_shard": parallel.fully_shard,
        "memory_gb_per_gpu": round(one.memory_gb_per_gpu, 2),
        "fits": one.fits,
        "step_ms": round(1e3 * one.seconds.total, 2),
        "seconds": {part: round(value, 5) for part, value in vars(one.seconds).items()},
        "model_flop_utilisation": round(one.utilisation, 4),
    }


def lines(found: list[Outlook], asked: System) -> list[str]:
    """Return a table, and the settings of the best."""
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
    return [*table, f"best: {settings(found[0].system, asked)}"]


def settings(system: System, asked: System) -> str:
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


def warm_up_gb(system: System) -> float:
    """Return the most that a GPU needs: the fullest stage, or, not split, the warm-up's batch of whole lengths."""
    memory = memory_gb(system)
    if not system.parallel.splits:
        length = system.model.max_positions
        tokens = system.local_batch // system.parts * length
        layer, embeddings, heads = _keep(system, 1, sequence=False)
        kept = system.model.layers * layer.bytes(tokens, tokens * length)
        kept += sum(part.bytes(tokens, tokens * length) for part in (embeddings, heads))
        memory["activations"] = max(memory["activations"], kept / _GB)
    return sum(memory.values())


def memory_gb(system: System) -> dict[str, float]:
    """Of the fullest stage, in a backward pass of the largest microbatch."""
    stages = {0, system.layout.pipeline - 1}
    return max((_memory(system, place) for place in stages), key=lambda parts: sum(parts.values()))


def _rank(one: Outlook) -> tuple[bool, float]:
    return (not one.fits, one.seconds.total if one.fits else one.memory_gb_per_gpu)


def _memory(system: System, place: int) -> dict[str, float]:
    layout, shape, parallel = system.layout, system.model.shape(), system.parallel
    held = theory.stage_parameters(shape, layout, place)
    memory = {}
    if parallel.fully_shard:
        held //= layout.data
        ends = theory.embedding_parameters(shape) + theory.head_parameters(shape)
        # one unit with its gradient, and the next one that is gathered ahead
        memory["gathered"] = 3 * _WEIGHT_BYTES * max(ends, theory.layer_parameters(shape)) / _GB
    weights = _WEIGHT_BYTES * held / _GB
    options, averaged = system.optimizer, system.optimizer.ema_decay > 0
    shared = (0, layout.data if system.optimizer.sharded else 1)
    state = state_bytes(options, averaged, shape, held // shared[1], shared)
    return {
        "weights": weights,
        "gradients": weights,
        "optimizer": state / _GB,
        "warm_up_copy": weights,
        **memory,
        "activations": _activations(system, place) / _GB,
    }


def _activations(system: System, place: int) -> float:
    """Of all microbatches that a rank has begun and not ended, at the worst moment."""
    layout, parallel = system.layout, system.parallel
    load = load_of(system)
    tokens, pairs = load.most_tokens, load.most_pairs
    layer, embeddings, heads = _keep(system, layout.tensor, parallel.sequence)
    of_layer = layer.bytes(tokens, pairs)
    layers = system.model.layers / layout.stages  # of one stage
    kept = 0.0
    if parallel.recompute:
        kept, of_layer = of_layer, _WEIGHT_BYTES * tokens * system.model.hidden_size / layout.token_shares
    last = layout.pipeline - 1
    if place == 0:
        kept += embeddings.bytes(tokens, pairs) * _begun(system, 0)
    if place == last:
        kept += heads.bytes(tokens, pairs)
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


def _keep(system: System, tensor: int, sequence: bool) -> tuple[Kept, Kept, Kept]:
    """Count a layer, the embeddings and the heads: the same for all candidates."""
    same = {"parallel": Parallel(), "data": Data(path="", global_batch_size=system.world_size)}
    return _measured(system.model_copy(update=same), tensor, sequence)


@cache
def _measured(system: System, tensor: int, sequence: bool) -> tuple[Kept, Kept, Kept]:
    return layer_keeps(system, tensor, sequence), embeddings_keep(system), heads_keep(system)
