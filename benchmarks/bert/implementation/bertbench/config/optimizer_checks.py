"""State what optimizers other than Adam and LAMB can't be combined with."""

from collections.abc import Iterator

from bertbench.config.rule import rule
from bertbench.config.settings import Settings


@rule("optimizer.name", "optimizer.impl")
def _kernels_are_adams(settings: Settings) -> Iterator[str]:
    optimizer = settings.optimizer
    if not optimizer.is_adam_or_lamb and optimizer.impl not in ("auto", "torch"):
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


OPTIMIZER_RULES = (_kernels_are_adams, _matrices_are_whole)
