"""The rules about optimizers other than Adam and LAMB, and about the average of the weights."""

from collections.abc import Iterator

from bertbench.config.rule import rule
from bertbench.config.settings import Settings


@rule("optimizer.name", "optimizer.impl")
def _kernels_are_adams(settings: Settings) -> Iterator[str]:
    optimizer = settings.optimizer
    if not optimizer.options().closed and optimizer.impl != "torch":
        yield (
            f"optimizer.impl {optimizer.impl} has kernels for adam and lamb only, not for optimizer.name "
            f"{optimizer.name}; set optimizer.impl to torch"
        )


@rule("optimizer.name", "parallel")
def _matrices_are_whole(settings: Settings) -> Iterator[str]:
    if settings.optimizer.name == "muon" and settings.parallel.splits:
        yield (
            "optimizer.name muon updates whole matrices, which parallel splits; leave parallel "
            "out (optimizer.sharded saves memory too), or choose another optimizer"
        )


@rule("optimizer.name", "precision.compute", "communication.compression")
def _counts_every_step(settings: Settings) -> Iterator[str]:
    if settings.optimizer.name == "schedule_free" and settings.scales_loss:
        yield (
            "optimizer.name schedule_free can't skip steps without stopping the device, which fp16 gradients need; "
            "use bf16"
        )


@rule("optimizer.name", "optimizer.ema_decay", "optimizer.beta1")
def _schedule_free_averages(settings: Settings) -> Iterator[str]:
    optimizer = settings.optimizer
    if optimizer.name != "schedule_free":
        return
    if optimizer.ema_decay:
        yield (
            f"optimizer.ema_decay {optimizer.ema_decay}: optimizer.name schedule_free evaluates an average of its own; "
            "set optimizer.ema_decay to 0"
        )
    if optimizer.beta1 == 0:
        yield "optimizer.beta1 0: optimizer.name schedule_free divides by it; set optimizer.beta1 to 0.9, say"


OPTIMIZER_RULES = (_kernels_are_adams, _matrices_are_whole, _counts_every_step, _schedule_free_averages)
