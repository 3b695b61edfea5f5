"""The place of each rank in a layout, and the layouts that a system file may request."""

import pytest

from bertbench.common.errors import ConfigError
from bertbench.config.layout import Coordinate, Layout
from tests.conftest import Tiny

EIGHT = ("hardware.number_of_nodes=2", "launch.ranks_per_node=4")


def test_tensor_parallel_ranks_are_neighbours_and_stages_are_furthest_apart() -> None:
    layout = Layout(data=2, tensor=2, pipeline=2)
    places = [layout.coordinate(rank) for rank in range(8)]
    assert places[:5] == [
        Coordinate(pipeline=0, data=0, tensor=0),
        Coordinate(pipeline=0, data=0, tensor=1),
        Coordinate(pipeline=0, data=1, tensor=0),
        Coordinate(pipeline=0, data=1, tensor=1),
        Coordinate(pipeline=1, data=0, tensor=0),
    ]
    assert len(set(places)) == 8
    assert layout.lines() == ["stage 0: 0-1 | 2-3", "stage 1: 4-5 | 6-7"]


def test_data_parallelism_takes_the_ranks_that_are_left(tiny: Tiny) -> None:
    system = tiny(*EIGHT, "model.feed_forward_size=22", "parallel.tensor=2", "data.local_batch=3")
    assert system.layout == Layout(data=4, tensor=2)
    assert (system.global_batch_size, system.local_batch, system.parts) == (12, 3, 1)
    staged = tiny(*EIGHT, "parallel.pipeline=2", "parallel.microbatches=3")
    assert (staged.layout.data, staged.local_batch, staged.parts) == (4, 3, 3)


REFUSED = {
    "parallel.tensor=3": "8 ranks",
    "parallel.tensor=8": "4 ranks",
    "parallel.sequence=true": "parallel.tensor",
    "parallel.tensor=4": "model.attention_heads 2",
    "parallel.tensor=2 model.vocab_size=1": "model.vocab_size",
    "parallel.tensor=2 model.feed_forward_size=23": "model.feed_forward_size 23",
    "parallel.pipeline=4 parallel.microbatches=4": "model.layers 2",
    "parallel.pipeline=2": "microbatches 1",
    "parallel.microbatches=2": "parallel.pipeline",
    "parallel.schedule=interleaved": "interleaved",
    "parallel.pipeline=2 parallel.microbatches=4": "3 samples",
    "parallel.pipeline=2 data.local_batch=4 data.gradient_accumulation_steps=2": "data.gradient_accumulation_steps",
    "parallel.fully_shard=true parallel.tensor=2": "parallel.fully_shard",
    "parallel.tensor=2 clip.mode=bucket": "clip.mode",
    "parallel.tensor=2 data.balance=packed": "data.balance",
    "parallel.tensor=2 precision.compute=fp16": "precision.compute",
    "parallel.tensor=2 compute.compile=default": "compute.compile",
    "parallel.tensor=2 data.global_batch_size=14": "4 ranks",
}


@pytest.mark.parametrize(("overrides", "message"), REFUSED.items())
def test_an_impossible_layout_is_refused_by_name(tiny: Tiny, overrides: str, message: str) -> None:
    sizes = ("model.feed_forward_size=22", "data.local_batch=3")
    with pytest.raises(ConfigError, match=message):
        tiny(*EIGHT, *sizes, *overrides.split())
