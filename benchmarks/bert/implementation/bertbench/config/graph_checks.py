"""What `compute.compile: graphs` needs: steps that a GPU can replay, whose sizes and kernels are always the same."""

from collections.abc import Iterator

from bertbench.balance.plan import VARYING
from bertbench.config.rule import rule
from bertbench.config.settings import Settings

_WAY_OUT = "or compute.compile to default"


@rule("compute.compile", "data.balance", "data.equal_counts")
def _as_many_samples(settings: Settings) -> Iterator[str]:
    data = settings.data
    if settings.compute.compile == "graphs" and data.balance in VARYING and not data.equal_counts:
        remedy = "data.balance to planned and data.equal_counts" if data.balance == "packed" else "data.equal_counts"
        yield (
            f"compute.compile graphs needs equally many samples a rank, but data.balance {data.balance} gives ranks "
            f"different numbers; set {remedy}, {_WAY_OUT}"
        )


@rule("compute.compile", "parallel")
def _whole_model(settings: Settings) -> Iterator[str]:
    if settings.compute.compile == "graphs" and settings.parallel.splits:
        yield f"compute.compile graphs is for whole models; set parallel to one rank a model, {_WAY_OUT}"


@rule("compute.compile", "precision.compute", "communication.compression")
def _nothing_skipped(settings: Settings) -> Iterator[str]:
    if settings.compute.compile == "graphs" and settings.scales_loss:
        yield f"compute.compile graphs has no loss scaling, which fp16 needs; use bf16, {_WAY_OUT.removeprefix('or ')}"


@rule("compute.compile", "optimizer.name", "optimizer.impl", "optimizer.ema_decay")
def _steps_counted_on_the_device(settings: Settings) -> Iterator[str]:
    if settings.compute.compile != "graphs":
        return
    optimizer = settings.optimizer
    if not optimizer.is_adam_or_lamb:
        yield f"compute.compile graphs can't replay optimizer.name {optimizer.name}; set it to lamb or adam, {_WAY_OUT}"
    if optimizer.ema_decay:
        yield (
            "compute.compile graphs can't replay optimizer.ema_decay, which counts steps on the host; set it to 0, "
            f"{_WAY_OUT}"
        )
    if optimizer.impl == "apex":
        yield (
            "compute.compile graphs can't replay optimizer.impl apex, which counts steps on the host; set it to torch, "
            f"{_WAY_OUT}"
        )


@rule("compute.compile", "sync.method", "communication.compression")
def _sums_alike_in_every_step(settings: Settings) -> Iterator[str]:
    if settings.compute.compile != "graphs":
        return
    method, compression = settings.sync.method, settings.communication.compression
    if method != "every_step":
        yield f"compute.compile graphs can't replay sync.method {method}; set it to every_step, {_WAY_OUT}"
    if compression not in ("none", "bf16", "fp16"):
        yield f"compute.compile graphs can't replay communication.compression {compression}; use bf16, {_WAY_OUT}"


@rule("compute.compile", "launch.device", "precision.compute")
def _attention_of_fixed_size(settings: Settings) -> Iterator[str]:
    on_gpu = settings.compute.compile == "graphs" and settings.launch.device == "cuda"
    if on_gpu and settings.precision.compute == "fp32":
        yield (
            "compute.compile graphs on cuda needs attention of a fixed size, which torch's flash kernel has in half "
            f"precision only; set precision.compute to bf16, {_WAY_OUT}"
        )


GRAPH_RULES = (
    _as_many_samples,
    _whole_model,
    _nothing_skipped,
    _steps_counted_on_the_device,
    _sums_alike_in_every_step,
    _attention_of_fixed_size,
)
