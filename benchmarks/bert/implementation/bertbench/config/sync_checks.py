"""The rules that tie `sync` to other settings."""

from collections.abc import Iterator

from bertbench.config.rule import rule
from bertbench.config.settings import Settings


@rule("sync.method", "parallel", "optimizer.sharded")
def _copies_are_whole(settings: Settings) -> Iterator[str]:
    method = settings.sync.method
    if method == "every_step":
        return
    if settings.parallel.splits:
        yield f"sync.method {method} needs a whole model on every rank; set parallel to one rank a model, or every_step"
    if settings.optimizer.sharded:
        yield (
            f"sync.method {method} needs the whole optimizer state on every rank; leave optimizer.sharded out, or set "
            "sync.method to every_step"
        )


@rule("sync.method", "precision.compute", "communication.compression")
def _ranks_skip_no_step(settings: Settings) -> Iterator[str]:
    if settings.sync.method == "every_step":
        return
    overflowing = {
        "precision.compute": settings.precision.compute,
        "communication.compression": settings.communication.compression,
    }
    for name in (name for name, value in overflowing.items() if value == "fp16"):
        yield f"sync.method {settings.sync.method} can't skip the steps that overflow in {name} fp16; use bf16"


@rule("sync.method", "optimizer.ema_decay")
def _one_average_at_a_time(settings: Settings) -> Iterator[str]:
    if settings.sync.outer is not None and settings.optimizer.ema_decay:
        yield (
            f"optimizer.ema_decay averages one rank's steps, and sync.method {settings.sync.method} evaluates the mean "
            "of all ranks; set one of them to its default"
        )


@rule("sync.method", "communication.compression")
def _nothing_to_compress(settings: Settings) -> Iterator[str]:
    method, compression = settings.sync.method, settings.communication.compression
    if settings.sync.outer is not None and compression != "none":
        yield (
            f"communication.compression {compression} does nothing for sync.method {method}, which sends weights and "
            "no gradients; set one of them to its default"
        )


@rule("sync.method", "communication.compression")
def _late_sums_carry_no_error(settings: Settings) -> Iterator[str]:
    compression = settings.communication.compression
    if settings.sync.method == "delayed" and compression not in ("none", "bf16", "fp16"):
        yield (
            f"communication.compression {compression} exchanges twice in a step and can't be delayed; use bf16, or set "
            "sync.method to every_step"
        )


SYNC_RULES = (
    _copies_are_whole, _ranks_skip_no_step, _one_average_at_a_time, _nothing_to_compress, _late_sums_carry_no_error,
)  # fmt: skip
