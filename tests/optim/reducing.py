"""A reducer of any model for tests: buckets from the last parameter back, the order of small models' gradients."""

from functools import partial

from torch import nn

from bertbench.config.optimizer import ClipMode, Communication
from bertbench.optim.buckets import Buckets, bucket_table
from bertbench.optim.clip import gradient_norm, make_clip
from bertbench.optim.exchange import exchange
from bertbench.optim.gradient_sum import GradientSum, sum_class
from bertbench.optim.reducer import GradientReducer
from bertbench.optim.state import Scalar


def reducer_of(
    model: nn.Module,
    ranks: int,
    bucket_mb: float | None = None,
    *,
    mode: ClipMode = "none",
    max_norm: float = 1.0,
    options: Communication = Communication(),  # noqa: B008 - immutable
    local_size: int = 1,
    scale: Scalar = 1.0,
    way: GradientSum | None = None,
) -> GradientReducer:
    """Return a reducer by torch's collectives; `way` replaces the sum that the options describe. Collective."""
    parameters = list(model.parameters())
    buckets = Buckets(bucket_table(parameters[::-1], bucket_mb))
    clip = make_clip(mode, max_norm, ranks, len(buckets.all), scale)
    among = exchange(False, options.hierarchical, local_size, None)
    way = way or sum_class(options.compression)(options, among)
    return GradientReducer(buckets, clip, way, partial(gradient_norm, parameters), scale)
