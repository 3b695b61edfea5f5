"""Slices of flat buckets: how they are cut, when they are sent, and how many bytes that takes."""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from bertbench.config.optimizer import Compression
from bertbench.distributed.sliced_tensor import rectangles
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets, bucket_table, owned, ready_order, slice_length, starts_of
from bertbench.gradients.clip import GradientClip
from bertbench.gradients.exchange import Exchange, ReduceScatter, Wait
from bertbench.gradients.gradient_sum import ELEMENT_SUMS
from bertbench.gradients.reducer import GradientReducer
from bertbench.gradients.slices import LogicalSlices, SlicedWeights, norms_over_slices, sliced_norm
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import logical_weights, matrices_and_vectors
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.build_optimizer import build_optimizer
from bertbench.optim.interface import Optimizer
from bertbench.training.whole_trainer import tiny_backward
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
    tiny_backward(lambda batch: model(batch.inputs), TINY)


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


class NotingExchange(Exchange):
    """An exchange that does nothing but record which operations begin and which are awaited."""

    def __init__(self, buckets: Buckets, events: list[str]) -> None:
        self._events = events
        self._numbers: dict[int, int] = {}
        for bucket, weights in zip(buckets.all, buckets.weights, strict=True):
            for buffer in (weights, bucket.gradients):
                self._numbers[buffer.data_ptr()] = bucket.number

    def _begin(self, kind: str, buffer: Tensor) -> Wait:
        event = f"{kind} {self._numbers[buffer.data_ptr()]}"
        self._events.append(event)
        return lambda: self._events.append(f"wait {event}")

    def sum(self, buffer: Tensor) -> Wait:
        return self._begin("sum", buffer)

    def gather(self, buffer: Tensor) -> Wait:
        return self._begin("gather", buffer)


class LambPath(NamedTuple):
    """Return the operations of a LAMB step, in order."""

    reducer: GradientReducer
    optimizer: Optimizer
    weights: SlicedWeights


def lamb_path(model: Bert, buckets: Buckets, exchange: Exchange, compression: Compression = "none") -> LambPath:
    gradient_sum = ELEMENT_SUMS[compression](exchange)
    slices = [buckets.my_slice(bucket.gradients) for bucket in buckets.all]
    optimizer, _ = build_optimizer(model, lamb(), buckets)
    return LambPath(
        GradientReducer(buckets, GradientClip(), gradient_sum, partial(sliced_norm, slices)),
        optimizer,
        SlicedWeights(model, buckets, exchange),
    )


class Events(NamedTuple):
    """Return which operations begin and which are awaited, in order, and the number of buckets."""

    accumulating: list[str]
    """In a backward pass that isn't a step's last."""
    stepping: list[str]
    """In the last backward pass and the update."""
    following: list[str]
    """In the next step's forward and backward pass."""
    buckets: int


def events_of_steps(world: World) -> Events:
    model = Bert(TINY)
    noted: list[str] = []
    buckets = tiny_buckets(world, model)
    path = lamb_path(model, buckets, NotingExchange(buckets, noted))
    for number, layer in enumerate(model.layers):
        layer.register_forward_hook(lambda *_, number=number: noted.append(f"forward {number}"))
        layer.register_full_backward_hook(lambda *_, number=number: noted.append(f"backward {number}"))
    with path.reducer.accumulating(last=False):
        backward(model)
    accumulating = taken(noted)
    backward(model)
    path.reducer.finish()
    path.optimizer.step(0.1)
    path.weights.publish()
    stepping = taken(noted)
    backward(model)
    return Events(accumulating, stepping, taken(noted), len(buckets.all))


def taken(events: list[str]) -> list[str]:
    """Empty the list; return its former content."""
    held = list(events)
    events.clear()
    return held


@pytest.fixture(scope="module")
def events() -> Events:
    (events,) = run_ranks(1, events_of_steps)
    assert events.buckets > 4
    return events


def test_accumulation_sends_nothing(events: Events) -> None:
    assert {event.split()[0] for event in events.accumulating} == {"forward", "backward"}


def test_buckets_are_sent_in_order_the_heads_first_during_the_backward_pass(events: Events) -> None:
    sums = [event for event in events.stepping if event.startswith("sum")]
    assert sums == [f"sum {number}" for number in range(events.buckets)]
    at = events.stepping.index
    assert at("sum 0") < at("backward 1") < at("backward 0")


def test_no_sum_is_awaited_before_all_are_sent(events: Events) -> None:
    at = events.stepping.index
    assert at(f"sum {events.buckets - 1}") < at("wait sum 0")


def test_weights_are_gathered_after_the_update_the_embeddings_first(events: Events) -> None:
    # the embeddings' gradients are the last to be ready, so they stand in the last bucket
    gathers = [f"gather {number}" for number in reversed(range(events.buckets))]
    assert events.stepping[-events.buckets :] == gathers


def test_the_next_forward_pass_waits_for_a_layer_s_weights_only_when_it_reads_them(events: Events) -> None:
    at = events.following.index
    assert at(f"wait gather {events.buckets - 1}") < at("forward 0") < at("wait gather 0")


class Sent(NamedTuple):
    """The bytes that a rank sends in a step."""

    counted: int
    by_formula: int


def sent_in_a_step(world: World, compression: Compression) -> Sent:
    model = Bert(TINY)
    buckets = tiny_buckets(world, model)
    path = lamb_path(model, buckets, ReduceScatter(), compression)
    groups: Any = SimpleNamespace(data=distributed.group.WORLD, layout=SimpleNamespace(pipeline=1))
    with Traffic(groups) as traffic:
        backward(model)
        path.reducer.finish()
        path.optimizer.step(0.1)
        path.weights.publish()
        path.weights.ready()
    matrices, _ = matrices_and_vectors(model.parameters())
    tensors = sum(model.fused_parameters().get(matrix, 1) for matrix in matrices)
    clip_norm, trust_norms = 8, 2 * 4 * tensors  # one in fp64, two of each tensor in fp32
    norms = 2 * (world.size - 1) * (clip_norm + trust_norms) / world.size
    filled = sum(flat.numel() for flat in buckets.weights)
    # a ring's reduce-scatter of gradients and all-gather of fp32 weights
    width = 4 if compression == "none" else 2
    formula = (world.size - 1) * (width + 4) * filled // world.size
    return Sent(traffic.sent["data"] - round(norms), formula)


@pytest.mark.parametrize("compression", ["none", "bf16"])
def test_a_rank_sends_the_bytes_of_the_formula(compression: Compression) -> None:
    sent = run_ranks(4, sent_in_a_step, compression)[0]
    assert sent.counted == sent.by_formula


def test_buckets_are_padded_by_less_than_16_elements_per_tensor_and_slice() -> None:
    parameters = list(Bert(TINY).parameters())
    buckets = Buckets(bucket_table(parameters, bucket_mb=0.0004), sliced=True, slices=4, place=0)
    filling = sum(flat.numel() for flat in buckets.weights) - sum(parameter.numel() for parameter in parameters)
    assert 0 < filling < 16 * (len(parameters) + 4 * len(buckets.all))


def no_matrix_here(world: World) -> list[float]:
    """Weights after a step where the second rank's slice holds biases only."""
    matrix = nn.Parameter(torch.full((2, 8), 2.0))
    bias = nn.Parameter(torch.ones(16))
    buckets = Buckets([[matrix, bias]], sliced=True, slices=world.size, place=world.rank)
    optimizer = MultiTensorAdam(
        [matrix, bias],
        lamb(epsilon=1e-30, weight_decay=0.0),
        tensor_factory=partial(LogicalSlices, buckets),
        whole_norms=norms_over_slices(buckets, {}),
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
