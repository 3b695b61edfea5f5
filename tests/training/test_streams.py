"""Streams without a GPU: a stream may use memory that another one used only after a wait. Mock streams check it.

A stream knows how far it has waited for each other one; each tensor keeps who wrote it and who has read it since.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart, Loader
from bertbench.training.graph_trainer import GraphTrainer
from tests.conftest import Tiny
from tests.ranks import run_ranks
from tests.training.as_on_a_gpu import as_on_a_gpu
from tests.training.replayed_steps import GRAPHS, bin_sampler, raw_batches
from tests.training.steps import SEED, sampler_of
from tests.training.tape import tape


class Stream:
    """Count operations, and how many operations of each other stream this one has waited for."""

    device = torch.device("cpu")

    def __init__(self, streams: "Streams") -> None:
        self.streams, self.done, self.waited = streams, 0, dict[Stream, int]()

    def wait_stream(self, other: "Stream") -> None:
        self.streams.waits += 1
        if self.streams.waits != self.streams.dropped:
            for stream, done in {**other.waited, other: other.done}.items():
                self.waited[stream] = max(self.waited.get(stream, 0), done)


class Streams(TorchDispatchMode):
    """In the body, use mock streams; `problems` receives each use without a wait before it."""

    def __init__(self, dropped: int = 0) -> None:
        """Ignore the wait of this number, counted from 1."""
        super().__init__()
        self.waits, self.dropped, self.problems = 0, dropped, list[str]()
        self.current = Stream(self)
        self._written: dict[int, tuple[Stream, int]] = {}
        self._read: dict[int, dict[Stream, int]] = {}
        self._kept: list[torch.UntypedStorage] = []  # no address may serve twice

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Sequence[Any] = (), options: Any = None) -> Any:
        answer = function(*arguments, **(options or {}))
        name = function._schema.name
        if not function.is_view and "empty" not in name and name != "aten::detach":
            changed = [
                value
                for described, value in zip(function._schema.arguments, arguments, strict=False)
                if described.alias_info is not None and described.alias_info.is_write
            ]
            self.uses(name, [arguments, options], [changed, answer])
        return answer

    def uses(self, name: str, read: Any, written: Any) -> None:
        """Note an operation of the current stream; `read` holds what it writes in place, too."""
        stream = self.current
        stream.done += 1
        for at in self._addresses(read):
            self._wants(name, [self._written[at]] if at in self._written else [])
            self._read.setdefault(at, {})[stream] = stream.done
        for at in self._addresses(written):
            self._wants(name, self._read.pop(at, {}).items())
            self._written[at] = stream, stream.done

    def _addresses(self, values: Any) -> set[int]:
        storages = [leaf.untyped_storage() for leaf in _pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
        self._kept += storages
        return {storage.data_ptr() for storage in storages}

    def _wants(self, name: str, before: Any) -> None:
        waited = self.current.waited
        self.problems += [name for other, done in before if other is not self.current and waited.get(other, 0) < done]

    @contextmanager
    def on(self, stream: Stream | None) -> Iterator[None]:
        before, self.current = self.current, stream or self.current
        yield
        self.current = before

    def __enter__(self) -> "Streams":
        self._patch = mock.patch.multiple(
            torch.cuda, Stream=lambda *_: Stream(self), stream=self.on, current_stream=lambda *_: self.current,
            is_initialized=lambda: True, synchronize=lambda *_: None,
        )  # fmt: skip
        self._patch.start()
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._patch.stop()


class OnAStream(GraphTrainer):
    """A trainer with a separate stream on a machine without a GPU."""

    @staticmethod
    def _new_stream(device: torch.device) -> Any:
        return torch.cuda.Stream(device)


def problems_by_dropped_wait(work: Callable[[], None], waits: int) -> list[bool]:
    """Whether there are problems with all waits, and without each of them."""
    found = []
    for dropped in range(waits + 1):
        with Streams(dropped) as streams:
            work()
        assert streams.waits == waits
        found.append(bool(streams.problems))
    return found


def test_recorded_steps_need_each_of_their_waits_and_no_other(tiny: Tiny) -> None:
    choices = ("launch.ranks_per_node=1", "model.layers=1", *GRAPHS)
    assert run_ranks(1, check_recorded, tiny(*choices)) == [[False, True, True]]


def check_recorded(world: World, system: System) -> list[bool]:
    bins = bin_sampler(system).bins
    bins.all = bins.all[-1:]
    parts = [LoadedPart(part, bins.fill(batch)) for part, batch in raw_batches(world, system, 2)]

    def work() -> None:
        trainer = OnAStream(system, world, SEED, bins, record=tape)
        for part in parts:
            trainer.step(0, [part])
        trainer.close()

    with as_on_a_gpu():
        return problems_by_dropped_wait(work, waits=2)


def test_batches_from_the_loader_s_stream_need_its_wait(tiny: Tiny) -> None:
    assert run_ranks(1, check_loader, tiny("launch.ranks_per_node=1")) == [[False, True]]


def check_loader(world: World, system: System) -> list[bool]:
    sampler = sampler_of(system)

    def work() -> None:
        streams: Any = torch.utils._python_dispatch._get_current_dispatch_mode()

        def copied(batch: Batch, _: torch.device) -> Batch:
            streams.uses("copy", [], batch.tensors)  # the loader's thread sees no mode
            return batch

        kept: list[Stream] = []
        with (
            mock.patch.object(torch.cuda, "set_device", lambda device: None),
            mock.patch.object(Batch, "to", copied),
            mock.patch.object(Batch, "record_stream", lambda batch, stream: kept.append(stream)),
        ):
            loader = Loader(sampler, 0, torch.device("cuda", 0))
            for step in loader.steps(range(1)):
                for part in step.parts:
                    part.batch.tokens_T.sum()
        assert kept == [streams.current]

    return problems_by_dropped_wait(work, waits=1)
