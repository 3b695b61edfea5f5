"""A small model, and a reducer of any: buckets from the last parameter back, the order of small models' gradients."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bertbench.common.scalars import Scalar
from bertbench.config.optimizer import ClipMode, Compression
from bertbench.gradients.buckets import Buckets, bucket_table
from bertbench.gradients.clip import gradient_norm, make_clip
from bertbench.gradients.exchange import choose_exchange
from bertbench.gradients.gradient_sum import ELEMENT_SUMS, GradientSum
from bertbench.gradients.reducer import GradientReducer, PartwiseReducer

BUCKET_MB = 60 / 2**20  # 60 bytes: a bucket a layer of the small model


def small_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 5), nn.Tanh(), nn.Linear(5, 3))


def loss_of(model: Any, rank: int, part: int) -> Tensor:
    """Make each rank's gradient about a third of the previous rank's, so that some are clipped and some aren't."""
    inputs = torch.randn(13, 7, generator=torch.Generator().manual_seed(100 * rank + part))
    loss: Tensor = model(inputs).square().sum() / (13 * 3**rank)
    return loss


def reducer_of(
    model: nn.Module,
    ranks: int,
    bucket_mb: float | None = None,
    *,
    mode: ClipMode = "none",
    max_norm: float = 1.0,
    compression: Compression = "none",
    scale: Scalar = 1.0,
    way: GradientSum | None = None,
    in_place: bool = False,
    clip_parts: int = 1,
) -> GradientReducer:
    """Return a reducer by torch's collectives; `way` replaces the sum of the compression. Collective."""
    parameters = list(model.parameters())
    buckets = Buckets(bucket_table(parameters[::-1], bucket_mb))
    clip = make_clip(mode, max_norm, ranks * clip_parts, len(buckets.all), scale)
    exchange = choose_exchange(sharded=False, shared=None)
    way = way or ELEMENT_SUMS[compression](exchange)
    norm = partial(gradient_norm, parameters)
    if clip_parts > 1:
        return PartwiseReducer(buckets, clip, way, norm, scale)
    return GradientReducer(buckets, clip, way, norm, scale, in_place)
