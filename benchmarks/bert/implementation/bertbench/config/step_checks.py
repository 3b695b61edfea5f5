"""What replayed steps, and steps that ranks take by themselves, need of other settings.

Graphs (`compute.compile`) need steps that a GPU can replay, whose sizes and kernels are always the same; `sync.method`
needs whole copies of the model on all ranks.
"""

from bertbench.balance.plan import VARYING
from bertbench.config.settings import Rule, Settings, limited

NOT_FP16 = ("fp32", "bf16", "auto")


def counts_vary(settings: Settings) -> str | None:
    """Return why ranks may get different numbers of samples, with a remedy; None if they get as many."""
    data = settings.data
    if data.balance not in VARYING or data.equal_counts:
        return None
    remedy = "data.balance to planned and data.equal_counts" if data.balance == "packed" else "data.equal_counts"
    return f"data.balance {data.balance} gives ranks different numbers of samples; set {remedy}"


def _replays(settings: Settings) -> bool:
    return settings.compute.compile == "graphs"


GRAPH_RULES: tuple[Rule, ...] = (
    *limited(
        _replays,
        "can't be replayed by compute.compile graphs",
        "compute.compile to default",
        {
            "optimizer.name": ("lamb", "adam"),
            "optimizer.ema_decay": (0.0,),  # it counts steps on the host, as apex does
            "optimizer.impl": ("auto", "torch", "triton"),
            "sync.method": ("every_step",),
            "communication.compression": ("none", "bf16"),  # fp16 needs a loss scale
            "precision.compute": NOT_FP16,
        },
    ),
    lambda s: (
        _replays(s)
        and (why := counts_vary(s))
        and f"compute.compile graphs needs equally many samples a rank, but {why}, or compute.compile to default"
    ),
    lambda s: (
        _replays(s)
        and s.parallel.splits
        and "compute.compile graphs is for whole models; leave parallel out, or set compute.compile to default"
    ),
    lambda s: (
        _replays(s)
        and s.launch.device == "cuda"
        and s.precision.compute == "fp32"
        and "compute.compile graphs on cuda needs attention of a fixed size, which torch's flash kernel has in "
        "half precision only; set precision.compute to bf16, or compute.compile to default"
    ),
)

SYNC_RULES: tuple[Rule, ...] = (
    *limited(
        lambda s: s.sync.method != "every_step",
        "goes with sync.method every_step only",  # others keep whole states a rank, and can't skip an overflow
        "set that",
        {"optimizer.sharded": (False,), "precision.compute": NOT_FP16},
    ),
    *limited(
        lambda s: s.sync.method == "delayed",
        "exchanges twice in a step, or skips one, and can't be delayed",
        "set sync.method to every_step",
        {"communication.compression": ("none", "bf16")},
    ),
    *limited(
        lambda s: s.sync.outer,
        "doesn't go with weights that ranks train alone and average (sync.method)",
        "set sync.method to every_step",
        {"optimizer.ema_decay": (0.0,), "communication.compression": ("none",)},
    ),
)
