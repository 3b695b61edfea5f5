"""Virtual ranks compared with real ones: the reducer on gloo processes, and the same parts in one process."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from bertbench.config.optimizer import ClipMode
from bertbench.distributed.world import World
from bertbench.gradients.clip import contribution_limit, gradient_norm
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from lab.study.language_run import Reduce, initial_language_model, real_ranks
from lab.study.virtual_ranks import VirtualRanks
from tests.lab.study.settings import setting
from tests.ranks import run_ranks

BUCKET_MB = 0.0008
MODES: list[ClipMode] = ["none", "after", "before", "bucket"]


def shares_of(ranks: int) -> list[LoadedPart]:
    return setting().language().shares(np.random.default_rng(1), 8, ranks)


def limits_of(ranks: int) -> dict[ClipMode, float]:
    """Return a norm for each mode: half the whole gradient's, or one that some ranks' exceed and some don't."""
    norms = []
    for some in (shares_of(ranks), *([share] for share in shares_of(ranks))):
        model = initial_language_model(setting(), 1)
        VirtualRanks(model, "none", 1.0, ranks, None).reduce(some)
        norms.append(gradient_norm(list(model.parameters())).item())
    whole, *own = norms
    between = ranks * (min(own) + max(own)) / 2
    return {"none": 1.0, "after": whole / 2, "before": between, "bucket": between}


def reduced(model: Bert, reduce: Reduce, shares: Sequence[LoadedPart]) -> tuple[list[float], float]:
    """Return the gradient that the optimizer sees, and the share of clipping: of this rank, or of all virtual ones."""
    result = reduce(shares)
    factor = 1.0 if result.coefficient is None else result.coefficient
    gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    return (torch.cat(gradients) * factor).tolist(), result.clipped.item()


def reduced_by_real_ones(world: World, limits: dict[ClipMode, float]) -> list[tuple[list[float], float]]:
    """For each mode: the gradient of the second of two equal steps, and this rank's share of clipping."""
    found = []
    for mode in MODES:
        model = initial_language_model(setting(), 1)
        reduce = real_ranks(world, setting(mode=mode, max_norm=limits[mode], bucket_mb=BUCKET_MB), model)
        reduce(shares_of(world.size))
        found.append(reduced(model, reduce, shares_of(world.size)))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_virtual_ranks_reduce_as_real_ones_do_in_every_clip_mode(ranks: int) -> None:
    limits, norms = limits_of(ranks), {}
    for mode, real in zip(MODES, zip(*run_ranks(ranks, reduced_by_real_ones, limits), strict=True), strict=True):
        model = initial_language_model(setting(), 1)
        virtual = VirtualRanks(model, mode, limits[mode], ranks, BUCKET_MB)
        gradient, clipped = reduced(model, virtual.reduce, shares_of(ranks))
        assert gradient == pytest.approx(real[0][0], rel=1e-4, abs=1e-7)  # sums in another order
        assert len(virtual.buckets) == 4
        assert clipped == pytest.approx(sum(share for _, share in real) / ranks)
        if mode in ("before", "bucket"):
            assert 0 < clipped < 1, "some are clipped and some aren't"
        norms[mode] = np.linalg.norm(gradient)
    assert norms["after"] == pytest.approx(norms["none"] / 2, rel=1e-4)
    assert max(norms["before"], norms["bucket"]) < 0.99 * norms["none"], "clipping made it smaller"


@pytest.mark.parametrize(("exponent", "limit"), [(0.0, 2.0), (0.5, 1.0), (1.0, 0.5)])
def test_the_limit_of_a_bucket_falls_with_their_number(exponent: float, limit: float) -> None:
    assert contribution_limit(6.0, 3, 4, exponent) == limit  # 6 / 3 = 2, over 1, 2 and 4
    assert contribution_limit(6.0, 3, 1, exponent) == 2.0, "one bucket has the whole threshold"
    model = initial_language_model(setting(), 1)
    ranks = VirtualRanks(model, "bucket", 6e-3, 1, BUCKET_MB, exponent)
    ranks.reduce(shares_of(1))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    norms = [torch.cat([gradients[name].flatten() for name in names]).norm().item() for names in ranks.buckets]
    assert norms == pytest.approx([3e-3 * limit] * 4, rel=1e-5), "every bucket was clipped to it"
