"""The rules about optimizers other than Adam and LAMB, and about the average of the weights."""

from collections.abc import Iterator

from bertbench.config.rule import rule
from bertbench.config.settings import Settings

_EVERYWHERE = ("adam", "lamb")


@rule("optimizer.name", "optimizer.impl")
def _kernels_are_adams(settings: Settings) -> Iterator[str]:
    optimizer = settings.optimizer
    if optimizer.name not in _EVERYWHERE and optimizer.impl != "torch":
        yield (
            f"optimizer.impl {optimizer.impl} has kernels for {' and '.join(_EVERYWHERE)} only, not for "
            f"optimizer.name {optimizer.name}; set optimizer.impl to torch"
        )


@rule("optimizer.name", "parallel", "optimizer.sharded")
def _matrices_are_whole(settings: Settings) -> Iterator[str]:
    name = settings.optimizer.name
    if name != "muon":
        return
    if settings.parallel.splits:
        yield (
            f"optimizer.name {name} updates whole matrices, which parallel splits; set parallel to one rank a model, "
            "or choose adam or lamb"
        )
    if settings.optimizer.sharded:
        yield f"optimizer.name {name} updates whole matrices, which optimizer.sharded slices; leave it out"


OPTIMIZER_RULES = (_kernels_are_adams, _matrices_are_whole)
