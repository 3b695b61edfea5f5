"""Every clip mode on real gloo ranks, against its definition computed in one process with plain tensors."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertbench.config.optimizer import ClipMode, Compression
from bertbench.distributed.world import World
from bertbench.gradients.clip import gradient_norm
from tests.gradients.reducing import BUCKET_MB, loss_of, reducer_of, small_model
from tests.ranks import run_ranks

PARTS = 3  # of gradient accumulation


def reduced(
    world: World, mode: ClipMode, max_norm: float, scale: float | None, compression: Compression
) -> tuple[list[float], tuple[int, ...], float | None]:
    """The flat gradient, last layer first, of the second of two steps."""
    model = small_model()
    factor = torch.tensor(1.0 if scale is None else scale)
    reducer = reducer_of(
        model, world.size, BUCKET_MB, mode=mode, max_norm=max_norm, compression=compression, scale=factor
    )
    for _ in range(2):
        reducer.drop()
        for part in range(PARTS):
            with reducer.accumulating(last=part == PARTS - 1):
                (loss_of(model, world.rank, part) * factor).backward()
        reduced = reducer.finish()
    gradient = flat(list(model.parameters())) * (1.0 if reduced.factor is None else reduced.factor) / factor
    return gradient.tolist(), reducer.elements, reduced.clipped.item() if mode in ("before", "bucket") else None


def flat(parameters: list[nn.Parameter]) -> Tensor:
    """Gradients in the order in which they become ready, that of the buckets: from the last layer back."""
    return torch.cat([parameter.grad.view(-1) for parameter in reversed(parameters)])


def clip(vector: Tensor, limit: float) -> Tensor:
    return vector * min(1.0, limit / vector.norm().item())


def defined(mode: ClipMode, max_norm: float, ranks: int, buckets: tuple[int, ...]) -> tuple[Tensor, list[float]]:
    """The mode's gradient by its definition, flat in the order of the buckets, and each rank's share clipped."""
    own = []  # a rank's gradient as data-parallel training has it: of its mean loss, here ranks times its contribution
    for rank in range(ranks):
        model = small_model()
        (ranks * sum(loss_of(model, rank, part) for part in range(PARTS))).backward()
        own.append(flat(list(model.parameters())))
    if mode == "after":
        return clip(torch.stack(own).mean(0), max_norm), []
    if mode == "none":
        return torch.stack(own).mean(0), []
    pieces, limit = ([sum(buckets)], max_norm) if mode == "before" else (buckets, max_norm / math.sqrt(len(buckets)))
    split = [gradient.split(list(pieces)) for gradient in own]
    shares = [sum(piece.norm().item() > limit for piece in parts) / len(pieces) for parts in split]
    return torch.stack([torch.cat([clip(piece, limit) for piece in parts]) for parts in split]).mean(0), shares


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_mode_follows_its_definition(ranks: int) -> None:
    modes: list[ClipMode] = ["none", "after", "before", "bucket"]
    for mode, answers in zip(modes, zip(*run_ranks(ranks, all_modes, modes), strict=True), strict=True):
        (gradient, buckets, _), (scaled, _, _) = answers[0]
        expected, shares = defined(mode, 3.5 * ranks, ranks, buckets)
        assert len(buckets) > 2
        for found in (gradient, scaled):
            torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-5, atol=1e-6)
        assert [share for (_, _, share), _ in answers if share is not None] == pytest.approx(shares)
        assert mode in ("none", "after") or {0.0} < set(shares), "some are clipped and some aren't"
        assert mode != "bucket" or any(0 < share < 1 for share in shares)


def all_modes(world: World, modes: list[ClipMode]) -> list[Any]:
    """Each mode, with and without a loss scale."""
    return [tuple(reduced(world, mode, 3.5 * world.size, scale, "none") for scale in (None, 1024.0)) for mode in modes]


def test_a_value_that_is_not_finite_on_one_rank_survives_every_clip_on_all_ranks() -> None:
    for mode, *finite in zip(("before", "bucket"), *run_ranks(2, finite_after_overflow), strict=True):
        assert finite == [False, False], mode


def finite_after_overflow(world: World) -> list[bool]:
    """For each mode, whether the reduced gradient is finite where one element on rank 1 wasn't."""
    found = []
    modes: list[ClipMode] = ["before", "bucket"]
    for mode in modes:
        module = nn.Linear(5, 3)
        reducer = reducer_of(module, world.size, mode=mode)
        loss = module(torch.ones(2, 5)).sum()
        if world.rank == 1:
            loss = loss + module.bias[0] * torch.inf
        loss.backward()
        reducer.finish()
        found.append(bool(torch.isfinite(gradient_norm(list(module.parameters())))))
    return found


@pytest.mark.parametrize("mode", ["before", "bucket"])
def test_every_part_is_clipped_by_itself_as_if_it_were_a_rank(mode: ClipMode) -> None:
    ranks, max_norm = 2, 5.0
    for gradient, buckets, share in run_ranks(ranks, reduced_by_part, mode, max_norm):
        limit = max_norm if mode == "before" else max_norm / math.sqrt(len(buckets))
        pieces = [sum(buckets)] if mode == "before" else buckets
        expected = torch.zeros(sum(buckets))
        clipped = []
        for rank in range(ranks):
            for part in range(PARTS):
                model = small_model()
                (ranks * PARTS * loss_of(model, rank, part)).backward()  # the gradient of the part's own mean loss
                split = flat(list(model.parameters())).split(list(pieces))
                expected += torch.cat([clip(piece, limit) for piece in split]) / (ranks * PARTS)
                clipped += [piece.norm().item() > limit for piece in split]
        torch.testing.assert_close(torch.tensor(gradient), expected, rtol=1e-5, atol=1e-6)
        assert expected.norm() <= max_norm
        assert 0 < sum(clipped) < len(clipped), "some are clipped and some aren't"
        assert 0 <= share <= 1


def reduced_by_part(world: World, mode: ClipMode, max_norm: float) -> tuple[list[float], tuple[int, ...], float]:
    """The flat gradient, last layer first, of the second of two steps whose parts are clipped by themselves."""
    model = small_model()
    scale = torch.tensor(512.0)
    reducer = reducer_of(model, world.size, BUCKET_MB, mode=mode, max_norm=max_norm, scale=scale, clip_parts=PARTS)
    for _ in range(2):
        for part in range(PARTS):
            with reducer.accumulating(last=part == PARTS - 1):
                (loss_of(model, world.rank, part) * scale).backward()
        result = reducer.finish()
        gradient = (flat(list(model.parameters())) / scale).tolist()
        reducer.drop()
    return gradient, reducer.elements, result.clipped.item()


def test_a_part_that_is_not_finite_survives_clipping_by_part() -> None:
    assert run_ranks(2, finite_after_a_part_overflowed) == [[False, False], [False, False]]


def finite_after_a_part_overflowed(world: World) -> list[bool]:
    """For each mode, whether the reduced gradient is finite where the first part on rank 1 wasn't."""
    finite = []
    modes: list[ClipMode] = ["before", "bucket"]
    for mode in modes:
        model = small_model()
        reducer = reducer_of(model, world.size, BUCKET_MB, mode=mode, clip_parts=2)
        with reducer.accumulating(last=False):
            overflowed = torch.inf if world.rank == 1 else 1.0
            (loss_of(model, world.rank, 0) * overflowed).backward()
        with reducer.accumulating(last=True):
            loss_of(model, world.rank, 1).backward()
        reducer.finish()
        finite.append(bool(torch.isfinite(gradient_norm(list(model.parameters())))))
    return finite
