"""A sum that stays in bf16 has the same bits as one that is written back, and doesn't change the gradients."""

import torch
from torch import Tensor, nn

from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import Bf16Sum, KeptBf16Sum
from tests.ranks import run_ranks


def test_a_kept_sum_is_the_restored_one() -> None:
    for restored, kept, own, left in run_ranks(2, both_sums):
        assert kept == restored
        assert left == own, "the buffers of float32 are the optimizer's to write"
        assert kept != own


def both_sums(world: World) -> tuple[list[float], list[float], list[float], list[float]]:
    """Sums written back, sums kept, a rank's own gradients, and those after kept sums."""
    gradients = [torch.randn(shape, generator=torch.Generator().manual_seed(world.rank)) for shape in ((5, 7), (3,))]
    parameters, buckets = filled(gradients)
    add_up(buckets, Bf16Sum(Exchange()))
    restored = flat([gradient_of(parameter) for parameter in parameters])
    parameters, buckets = filled(gradients)
    gradient_sum = KeptBf16Sum(Exchange(), buckets)
    add_up(buckets, gradient_sum)
    assert gradient_sum.summed is not None
    kept = flat([gradient_sum.summed[parameter].float() for parameter in parameters])
    return restored, kept, flat(gradients), flat([gradient_of(parameter) for parameter in parameters])


def filled(gradients: list[Tensor]) -> tuple[list[nn.Parameter], Buckets]:
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    return parameters, Buckets([[parameter] for parameter in parameters])


def add_up(buckets: Buckets, gradient_sum: Bf16Sum) -> None:
    for bucket in buckets.all:
        bucket.take_in()
        gradient_sum.begin(bucket, torch.tensor(0.3))
    gradient_sum.finish()


def gradient_of(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def flat(tensors: list[Tensor]) -> list[float]:
    numbers: list[float] = torch.cat([tensor.view(-1) for tensor in tensors]).tolist()
    return numbers
