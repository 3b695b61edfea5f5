"""Virtual ranks beside real ones: the reducer on gloo processes, and the same shares of the batch in one."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from bertbench.config import System
from bertbench.config.optimizer import ClipMode, Communication
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import LoadedPart, Loader
from bertbench.model.bert import Bert
from bertbench.model.loss import weighted_loss
from bertbench.model.scores import Scores
from bertbench.optim.buckets import Buckets, bucket_table, ready_order
from bertbench.optim.clip import contribution_limit, gradient_norm, make_clip
from bertbench.optim.exchange import Exchange
from bertbench.optim.gradient_sum import ElementSum
from bertbench.optim.reducer import GradientReducer
from bertbench.training.build import make_sampler
from bertbench.training.trainer import initial_model, tiny_backward
from lab.study.language_run import initial_model as small_model
from lab.study.virtual_ranks import VirtualRanks
from tests.lab.study.settings import setting
from tests.ranks import run_ranks

SEED = 5
BUCKET_MB = 0.002  # a handful of buckets of the tiny model's 22 KB
MODES: list[ClipMode] = ["none", "after", "before", "bucket"]


def share_of(system: System, rank: int) -> LoadedPart:
    """Read what one rank trains on in the first step."""
    sampler = make_sampler(system, open_data(system)[0], SEED)
    (part,) = next(iter(Loader(sampler, rank, torch.device("cpu")).steps(range(1)))).parts
    return part


def limits_of(system: System, ranks: int, shares: list[LoadedPart]) -> dict[ClipMode, float]:
    """Return a norm for each mode: half the whole gradient's, or one that some ranks' exceed and some don't."""
    norms = []
    for some in (shares, *([share] for share in shares)):
        model = initial_model(system, SEED)
        VirtualRanks(model, "none", 1.0, ranks, BUCKET_MB).reduce(some)
        norms.append(gradient_norm(list(model.parameters())).item())
    whole, *own = norms
    between = ranks * (min(own) + max(own)) / 2
    return {"none": 1.0, "after": whole / 2, "before": between, "bucket": between}


def scores_of(model: Bert, batch: Batch) -> Scores:
    scores: Scores = model(*batch.inputs)
    return scores


def reduced(world: World, system: System, limits: dict[ClipMode, float]) -> list[tuple[list[float], list[int], float]]:
    """For each mode: the gradient of a step, the buckets' elements, this rank's share of clipping."""
    part, batch = share_of(system, world.rank)
    found = []
    for mode in MODES:
        model = initial_model(system, SEED)
        order = ready_order(model, partial(tiny_backward, partial(scores_of, model), system.model.shape()))
        buckets = Buckets(bucket_table(order, BUCKET_MB))
        clip, parameters = make_clip(mode, limits[mode], world.size, len(buckets.all)), list(model.parameters())
        reducer = GradientReducer(
            buckets, clip, ElementSum(Communication(), Exchange()), partial(gradient_norm, parameters)
        )
        for _ in range(2):
            reducer.drop()
            scores = model(batch.tokens_T, batch.segments_T, batch.positions_T, batch.sequences, batch.masked_at_M)
            loss = weighted_loss(
                scores, batch.masked_labels_M, batch.next_sentence_S, part.masked_lm_weight, part.next_sentence_weight
            )
            loss.backward()
            found_here = reducer.finish()
        factor = 1.0 if found_here.factor is None else found_here.factor
        gradient = torch.cat([parameter.grad.flatten() for parameter in parameters]) * factor
        found.append((gradient.tolist(), list(reducer.elements), found_here.clipped.item()))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_virtual_ranks_reduce_as_real_ones_do_in_every_clip_mode(tiny: Callable[..., System], ranks: int) -> None:
    system = tiny(f"launch.ranks_per_node={ranks}")
    shares = [share_of(system, rank) for rank in range(ranks)]
    limits = limits_of(system, ranks, shares)
    norms = {}
    for mode, on_ranks in zip(MODES, zip(*run_ranks(ranks, reduced, system, limits), strict=True), strict=True):
        model = initial_model(system, SEED)
        virtual = VirtualRanks(model, mode, limits[mode], ranks, BUCKET_MB)
        result = virtual.reduce(shares)
        parameters = dict(model.named_parameters())
        gradient = torch.cat([parameter.grad.flatten() for parameter in parameters.values()])
        gradient *= 1 if result.coefficient is None else result.coefficient
        real, buckets, _ = on_ranks[0]
        torch.testing.assert_close(gradient, torch.tensor(real), rtol=1e-4, atol=1e-7)  # sums in another order
        assert [sum(parameters[name].numel() for name in bucket) for bucket in virtual.buckets] == buckets
        assert len(buckets) > 4
        clipped = sum(share for _, _, share in on_ranks) / ranks
        assert result.clipped.item() == pytest.approx(clipped)
        if mode in ("before", "bucket"):
            assert 0 < clipped < 1, "some are clipped and some aren't"
        norms[mode] = gradient.norm().item()
    assert norms["after"] == pytest.approx(norms["none"] / 2, rel=1e-4)
    assert max(norms["before"], norms["bucket"]) < 0.99 * norms["none"], "clipping made it smaller"


def test_shares_of_one_layout_are_computed_at_once_as_one_after_the_other(tiny: Callable[..., System]) -> None:
    part, batch = share_of(tiny("launch.ranks_per_node=1", "data.global_batch_size=3"), 0)
    other = batch.tokens_T.flip(0)
    alike = [LoadedPart(part, batch), LoadedPart(part, type(batch)(**{**vars(batch), "tokens_T": other}))]
    together, apart = (initial_model(tiny(), SEED) for _ in range(2))
    VirtualRanks(together, "before", 1.0, 2, None).reduce(alike)
    one = VirtualRanks(apart, "before", 1.0, 2, None)
    summed = [torch.zeros_like(parameter) for parameter in apart.parameters()]
    for share in alike:
        one.reduce([share])
        torch._foreach_add_(summed, [parameter.grad for parameter in apart.parameters()])
    for parameter, expected in zip(together.parameters(), summed, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("exponent", "limit"), [(0.0, 2.0), (0.5, 1.0), (1.0, 0.5)])
def test_the_limit_of_a_bucket_falls_with_their_number(exponent: float, limit: float) -> None:
    assert contribution_limit(6.0, 3, 4, exponent) == limit  # 6 / 3 = 2, over 1, 2 and 4
    assert contribution_limit(6.0, 3, 1, exponent) == 2.0, "one bucket has the whole threshold"
    small = setting(bucket_mb=0.0008)
    model = small_model(small, 1)
    ranks = VirtualRanks(model, "bucket", 6e-3, 1, small.bucket_mb, exponent)
    ranks.reduce(small.language().shares(np.random.default_rng(1), 8, 1))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    norms = [torch.cat([gradients[name].flatten() for name in names]).norm().item() for names in ranks.buckets]
    assert norms == pytest.approx([3e-3 * limit] * 4, rel=1e-5), "every bucket was clipped to it"
