"""What replayed steps, and steps that ranks take by themselves, need of other settings.

Graphs (`compute.compile`) need steps that a GPU can replay, whose sizes and kernels are always the same; `sync.method`
needs whole copies of the model on all ranks.
"""

from bertbench.balance.plan import VARYING
from bertbench.config.settings import Settings, only_if

_WAY_OUT = "or compute.compile to default"


def counts_vary(settings: Settings) -> str | None:
    """Return why ranks may get different numbers of samples, with a remedy; None if they get as many."""
    data = settings.data
    if data.balance not in VARYING or data.equal_counts:
        return None
    remedy = "data.balance to planned and data.equal_counts" if data.balance == "packed" else "data.equal_counts"
    return f"data.balance {data.balance} gives ranks different numbers of samples; set {remedy}"


GRAPH_RULES = only_if(
    lambda s: s.compute.compile == "graphs",
    lambda s: (
        (why := counts_vary(s)) and f"compute.compile graphs needs equally many samples a rank, but {why}, {_WAY_OUT}"
    ),
    lambda s: (
        s.parallel.splits
        and f"compute.compile graphs is for whole models; set parallel to one rank a model, {_WAY_OUT}"
    ),
    lambda s: (
        s.scales_loss
        and "compute.compile graphs has no loss scaling, which fp16 needs; use bf16, compute.compile to default"
    ),
    lambda s: (
        not s.optimizer.is_adam_or_lamb
        and f"compute.compile graphs can't replay optimizer.name {s.optimizer.name}; set it to lamb or adam, {_WAY_OUT}"
    ),
    lambda s: (
        s.optimizer.ema_decay
        and "compute.compile graphs can't replay optimizer.ema_decay, which counts steps on the host; set it to 0, "
        f"{_WAY_OUT}"
    ),
    lambda s: (
        s.optimizer.impl == "apex"
        and "compute.compile graphs can't replay optimizer.impl apex, which counts steps on the host; set it to "
        f"torch, {_WAY_OUT}"
    ),
    lambda s: (
        s.sync.method != "every_step"
        and f"compute.compile graphs can't replay sync.method {s.sync.method}; set it to every_step, {_WAY_OUT}"
    ),
    lambda s: (
        s.communication.compression not in ("none", "bf16", "fp16")
        and f"compute.compile graphs can't replay communication.compression {s.communication.compression}; use "
        f"bf16, {_WAY_OUT}"
    ),
    lambda s: (
        s.launch.device == "cuda"
        and s.precision.compute == "fp32"
        and "compute.compile graphs on cuda needs attention of a fixed size, which torch's flash kernel has in "
        f"half precision only; set precision.compute to bf16, {_WAY_OUT}"
    ),
)

SYNC_RULES = only_if(
    lambda s: s.sync.method != "every_step",
    lambda s: (
        s.parallel.splits
        and f"sync.method {s.sync.method} needs a whole model on every rank; set parallel to one rank a model, or "
        "every_step"
    ),
    lambda s: (
        s.optimizer.sharded
        and f"sync.method {s.sync.method} needs the whole optimizer state on every rank; leave optimizer.sharded "
        "out, or set sync.method to every_step"
    ),
    lambda s: s.scales_loss and f"sync.method {s.sync.method} can't skip the steps that overflow in fp16; use bf16",
    lambda s: (
        s.sync.outer
        and s.optimizer.ema_decay
        and f"optimizer.ema_decay averages one rank's steps, and sync.method {s.sync.method} evaluates the mean "
        "of all ranks; set one of them to its default"
    ),
    lambda s: (
        s.sync.outer
        and s.communication.compression != "none"
        and f"communication.compression {s.communication.compression} does nothing for sync.method "
        f"{s.sync.method}, which sends weights and no gradients; set one of them to its default"
    ),
    lambda s: (
        s.sync.method == "delayed"
        and s.communication.compression not in ("none", "bf16", "fp16")
        and f"communication.compression {s.communication.compression} exchanges twice in a step and can't be "
        "delayed; use bf16, or set sync.method to every_step"
    ),
)
