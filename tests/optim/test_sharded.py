"""Slices of flat buckets: how they are cut, what travels when, and how many bytes that takes."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from bertbench.config.optimizer import Communication, Compression
from bertbench.distributed.sliced_tensor import rectangles
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets, bucket_table, owned, ready_order, slice_length, starts_of
from bertbench.gradients.clip import GradientClip
from bertbench.gradients.exchange import Exchange, ReduceScatter, Wait
from bertbench.gradients.gradient_sum import sum_class
from bertbench.gradients.reducer import GradientReducer
from bertbench.gradients.slices import LogicalSlices, SlicedWeights, norms_over_slices, sliced_norm
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import logical_weights, matrices_and_vectors
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.build_optimizer import build_optimizer
from bertbench.optim.optimizer import Optimizer
from bertbench.training.trainer import tiny_backward
from tests.optim.drawn import TINY, lamb
from tests.parallel.traffic import Traffic
from tests.pieces import Pieces, pieces_of, put_together
from tests.ranks import run_ranks


def test_tensors_begin_at_multiples_of_16_elements_and_slices_are_equally_long() -> None:
    # 7 -> 16, 20 -> 32, 16: 64 elements in all; a third of them is 21.3 -> 32
    assert starts_of([7, 20, 16]) == [0, 16, 48, 64]
    assert slice_length([7, 20, 16], slices=3) == 32
    # slice 0 holds 7, and 16 of the 20; slice 1 the last 4, and all of the 16; slice 2 nothing
    assert [owned([7, 20, 16], 3, place) for place in range(3)] == [7 + 16, 4 + 16, 0]


@pytest.mark.parametrize(
    ("shape", "start", "length", "expected"),
    [
        ((4, 5), 3, 14, [((0, 3), [[3, 4]]), ((1, 0), [[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]), ((3, 0), [[15, 16]])]),
        ((4, 5), 6, 2, [((1, 1), [[6, 7]])]),
        ((9,), 4, 3, [((4,), [4, 5, 6])]),
    ],
)
def test_a_segment_is_a_piece_of_a_row_then_rows_then_a_piece(
    shape: tuple[int, ...], start: int, length: int, expected: list[tuple[tuple[int, ...], Any]]
) -> None:
    numbers = torch.arange(start, start + length)
    assert [(offsets, piece.tolist()) for offsets, piece in rectangles(shape, start, numbers)] == expected


def backward(model: Bert) -> None:
    tiny_backward(lambda batch: model(*batch.inputs), TINY)


def initialized(model: Bert) -> Bert:
    model.initialize(torch.Generator().manual_seed(3))
    return model


def tiny_buckets(world: World, model: Bert) -> Buckets:
    initialized(model)
    table = bucket_table(ready_order(model, lambda: backward(model)), bucket_mb=0.0004)
    return Buckets(table, sliced=True, slices=world.size, place=world.rank)


def segments(world: World) -> Pieces:
    """Return this rank's segments of the weights, in the shapes in which a snapshot saves them."""
    model = Bert(TINY)
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    slices = LogicalSlices(tiny_buckets(world, model), list(model.parameters()), model.fused_parameters())
    return pieces_of(slices.by_name(names, slices.weights))


def test_segments_of_all_ranks_are_all_weights_and_no_element_is_in_two() -> None:
    ranks = run_ranks(3, segments)
    weights = logical_weights(initialized(Bert(TINY)))
    together = put_together(ranks)
    assert together.keys() == weights.keys()
    for name, weight in weights.items():
        assert np.array_equal(together[name], weight.numpy()), name
    elements = sum(piece.content.size for rank in ranks for pieces in rank.values() for piece in pieces)
    assert elements == sum(weight.numel() for weight in weights.values())


class _Noted:
    """An exchange that does nothing and notes what begins and what is awaited."""

    slices, place = 1, 0

    def __init__(self, buckets: Buckets, events: list[str]) -> None:
        self._buckets, self._events = buckets, events

    def _begin(self, kind: str, buffer: Tensor) -> Wait:
        numbers = {
            tensor.data_ptr(): bucket.number
            for bucket, weights in zip(self._buckets.all, self._buckets.weights, strict=True)
            for tensor in (weights, bucket.gradients)
        }
        number = numbers[buffer.data_ptr()]
        self._events.append(f"{kind} {number}")
        return lambda: self._events.append(f"wait {kind} {number}")

    def sum(self, buffer: Tensor) -> Wait:
        return self._begin("sum", buffer)

    def gather(self, buffer: Tensor) -> Wait:
        return self._begin("gather", buffer)


def path(
    model: Bert, buckets: Buckets, among: Exchange, compression: Compression = "none"
) -> tuple[GradientReducer, SlicedWeights, Optimizer]:
    """Return what a step of LAMB passes through."""
    way = sum_class(compression)(Communication(compression=compression), among)
    optimizer, _ = build_optimizer(model, lamb(), buckets)
    own = [buckets.my_slice(bucket.gradients) for bucket in buckets.all]
    return (
        GradientReducer(buckets, GradientClip(), way, partial(sliced_norm, own)),
        SlicedWeights(model, buckets, among),
        optimizer,
    )


def order_of_events(world: World) -> tuple[list[str], int]:
    model, events = Bert(TINY), list[str]()
    buckets = tiny_buckets(world, model)
    reducer, weights, optimizer = path(model, buckets, _Noted(buckets, events))
    for number, layer in enumerate(model.layers):
        layer.register_forward_hook(lambda *_, number=number: events.append(f"forward {number}"))
        layer.register_full_backward_hook(lambda *_, number=number: events.append(f"backward {number}"))
    with reducer.accumulating(last=False):
        backward(model)
    assert not any("sum" in event for event in events), "accumulation sends nothing"
    events.clear()
    backward(model)
    reducer.finish()
    optimizer.step(0.1)
    weights.publish()
    backward(model)
    return events, len(buckets.all)


def test_sums_travel_behind_the_backward_pass_and_weights_behind_the_next_forward_pass() -> None:
    ((events, count),) = run_ranks(1, order_of_events)
    assert count > 4
    at = events.index
    assert [event for event in events[: at("gather 0")] if event.startswith("sum")] == [
        f"sum {n}" for n in range(count)
    ]
    assert at("sum 0") < at("backward 1") < at("backward 0"), "the heads' gradients leave first"
    assert at(f"sum {count - 1}") < at("wait sum 0"), "nothing is awaited before all has left"
    gathers = [f"gather {number}" for number in reversed(range(count))]
    begin = at(gathers[0])
    assert events[begin : begin + count] == gathers, "the embeddings' weights, which stand in the last bucket, first"
    after = events[begin:]
    assert after.index(f"wait gather {count - 1}") < after.index("forward 0") < after.index("wait gather 0")


def bytes_sent(world: World, compression: Compression) -> tuple[int, int, int]:
    """Bytes by count and by formula, and of filling."""
    model = Bert(TINY)
    buckets = tiny_buckets(world, model)
    reducer, weights, optimizer = path(model, buckets, ReduceScatter(), compression)
    groups: Any = SimpleNamespace(data=distributed.group.WORLD, layout=SimpleNamespace(pipeline=1))
    with Traffic(groups) as traffic:
        backward(model)
        reducer.finish()
        optimizer.step(0.1)
        weights.publish()
        weights.ready()
    matrices, _ = matrices_and_vectors(model.parameters())
    tensors = sum(model.fused_parameters().get(matrix, 1) for matrix in matrices)
    norms = 2 * (world.size - 1) * (8 + 2 * 4 * tensors) / world.size  # one in fp64, two of each tensor in fp32
    width = 4 if compression == "none" else 2
    filled, parameters = (
        sum(flat.numel() for flat in buckets.weights),
        sum(parameter.numel() for parameter in model.parameters()),
    )
    # a ring's reduce-scatter of gradients and all-gather of fp32 weights
    formula = (world.size - 1) * (width + 4) * filled // world.size
    return traffic.sent["data"] - round(norms), formula, filled - parameters


@pytest.mark.parametrize("compression", ["none", "bf16"])
def test_a_rank_sends_what_the_formula_says(compression: Compression) -> None:
    (counted, formula, filling), *_ = run_ranks(4, bytes_sent, compression)
    assert counted == formula
    assert 0 < filling < 16 * (len(list(Bert(TINY).parameters())) + 4 * 20)


def no_matrix_here(world: World) -> list[float]:
    """Weights after a step where the second rank's slice holds biases only."""
    matrix, bias = nn.Parameter(torch.full((2, 8), 2.0)), nn.Parameter(torch.ones(16))
    buckets = Buckets([[matrix, bias]], sliced=True, slices=world.size, place=world.rank)
    options, tensor_factory = lamb(epsilon=1e-30, weight_decay=0.0), partial(LogicalSlices, buckets)
    optimizer = MultiTensorAdam(
        [matrix, bias], options, tensor_factory=tensor_factory, whole_norms=norms_over_slices(buckets, {})
    )
    weights = SlicedWeights(nn.Sequential(), buckets, ReduceScatter())
    buckets.all[0].gradients.fill_(3.0)
    optimizer.step(0.5)
    weights.publish()
    weights.ready()
    return torch.cat((matrix.detach().view(-1), bias.detach())).tolist()


def test_a_rank_that_holds_no_matrix_still_takes_part_in_the_norms() -> None:
    # Adam's first update is 1 everywhere: |w| / |u| is 2, so the matrix falls by 0.5 * 2, and the bias by 0.5
    for weights in run_ranks(2, no_matrix_here):
        assert weights == pytest.approx([1.0] * 16 + [0.5] * 16)
