"""The results of ranks that are started as processes on this machine."""

from bertbench.distributed.world import World
from lab.spawn import on_ranks


def numbers(world: World, count: int) -> list[int]:
    return [world.rank, *range(1, count)]


def test_an_answer_larger_than_a_pipe_s_buffer_is_returned() -> None:
    assert on_ranks(1, numbers, 100_003) == [*range(100_003)]
