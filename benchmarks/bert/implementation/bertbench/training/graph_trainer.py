"""Replay the whole optimizer step as one CUDA graph per batch size; record all of them before the clock starts.

    init    for every bin: take a step, record it (accumulating parts are recorded apart)
    step    copy the batch into its bin's memory -> replay -> copy the report out

A replay launches forward and backward pass, reduction, clipping and update at once, without Python. Values that change
between steps are on the device: the batch, its weights in the loss, the count of steps, learning rates.
On a CPU nothing is recorded: the same functions run on the same memory, and tests replay them from a tape;
`gpu_check.sh` records graphs on a GPU and compares their losses.
Shapes: as in model/bert.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bertbench.common.errors import ConfigError
from bertbench.common.phase_clock import REPLAY, in_phase
from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.filler import Bin, Bins, fill_to, size_of
from bertbench.loading.loader import LoadedPart
from bertbench.model.arithmetic import attends_by_flash
from bertbench.model.linear import Products
from bertbench.model.products import Shape
from bertbench.model.sequences import EqualLengths, Sequences
from bertbench.results.metrics import StepReport
from bertbench.training.trainer import WARMUP_STEPS, WholeTrainer

Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Takes work; returns a function that repeats it on the same memory and returns the same tensor."""


class GraphTrainer(WholeTrainer):
    """A WholeTrainer that replays recorded steps.

    Raises ConfigError on a GPU whose attention is not one kernel of fixed size.
    """

    def __init__(
        self,
        system: System,
        world: World,
        seed: int,
        bins: Bins,
        startup: Startup | None = None,
        products: dict[Shape, Products] | None = None,
        record: Record | None = None,
    ) -> None:
        """Build, warm up and record; `record` replaces CUDA graphs in tests."""
        self._bins, device = bins, world.device
        self._stream = self._new_stream(device)
        self._record: Record = record or (_cuda_graphs(self._stream) if self._stream else lambda work: work)
        _check_attention(system, device)
        self._loss_sum = torch.zeros((), device=device)
        self._slots: dict[Bin, _Slot] = {}
        self._replays: dict[tuple[Bin, bool], Callable[[], Tensor]] = {}
        if self._stream is not None:  # the tensors above were filled on this one
            self._stream.wait_stream(torch.cuda.current_stream(device))
        # autograd adds up a gradient on the stream that first used its weight, which must be the recording's
        with torch.cuda.stream(self._stream):
            super().__init__(system, world, seed, startup, products)
        if self._stream is not None:
            torch.cuda.current_stream(device).wait_stream(self._stream)

    @staticmethod
    def _new_stream(device: torch.device) -> torch.cuda.Stream | None:
        return torch.cuda.Stream(device) if device.type == "cuda" else None

    def step(self, number: int, parts: Sequence[LoadedPart]) -> StepReport:
        """Take step `number`; the device keeps its own count."""
        del number
        with in_phase(REPLAY):
            for place, part in enumerate(parts, start=1):
                size = size_of(part.batch)
                self._slots[size].load(part)
                report_4 = self._replays[size, place == len(parts)]()
        loss, norm, rate, clipped = report_4.clone().unbind()  # the next replay overwrites it
        return StepReport(loss, norm, rate, clipped, None)

    def close(self) -> None:
        """Release the graphs first: NCCL's communicator waits for those that recorded it."""
        self._replays.clear()
        self._slots.clear()
        if self._stream is not None:
            torch.cuda.synchronize(self._stream.device)
        super().close()

    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        """Record a step for every bin, the largest first, so that the others fit into its memory."""
        system, device = self._system, self._world.device
        self.optimizer.resume(torch.zeros((), dtype=torch.float64, device=device))  # count on the device from now on
        parts = system.data.gradient_accumulation_steps
        count = system.samples_per_pass
        for size in reversed(self._bins.all):
            length = max(1, min(system.model.max_positions, (size.tokens - size.sequences) // count))
            batch = synthetic(count, length, system.model.vocab_size, generator)
            places, labels = batch.masked_at_M[: size.masked], batch.masked_labels_M[: size.masked]
            batch = replace(batch, masked_at_M=places, masked_labels_M=labels)
            slot = self._slots[size] = _Slot(fill_to(batch, size).to(device), system.model.max_positions)
            works = [(last, partial(self._part, slot, last)) for last in ((True,) if parts == 1 else (False, True))]
            for _ in range(WARMUP_STEPS if size == self._bins.all[-1] else 1):
                for _, work in works:
                    work()
            for last, work in works:
                self._replays[size, last] = self._record(work)
        self._loss_sum.zero_()
        self._evaluate_once(slot.batch)

    def _part(self, slot: "_Slot", last: bool) -> Tensor:
        """Add one part's gradient; in a step's last part, update and return [loss, norm, rate, clipped]."""
        loss = self._loss_of(slot.batch, *slot.weights_2.unbind())
        with self._reducer.accumulating(last):
            loss.backward()
        self._loss_sum.add_(loss.detach())
        if not last:
            return self._loss_sum
        report = self._update(0, self._loss_sum)
        self._path.weights.ready()  # a graph must finish the gathers that it starts
        report_4 = torch.stack((report.loss, report.norm, torch.as_tensor(report.rate), report.clipped))
        self._loss_sum.zero_()
        return report_4


class _Slot:
    """The memory of one bin's batches."""

    def __init__(self, batch: Batch, longest: int) -> None:
        ends_S1 = batch.sequences.cu_seqlens_S1
        # the flash kernel takes the longest sequence from the host: give it the bin's limit once
        bound = (EqualLengths(0, len(ends_S1) - 1, longest),)
        self.batch = replace(batch, sequences=Sequences(ends_S1, bound if ends_S1.is_cuda else batch.sequences.groups))
        self.weights_2 = torch.zeros(2, device=ends_S1.device)
        """Weights of both heads' losses."""

    def load(self, loaded: LoadedPart) -> None:
        """Copy a part into this memory without waiting for the device."""
        part, batch = loaded
        torch._foreach_copy_(self.batch.tensors, batch.tensors)
        for place, weight in enumerate((part.masked_lm_weight, part.next_sentence_weight)):
            self.weights_2[place].fill_(weight)
        if not self.weights_2.is_cuda:  # CPU attention lays out sequences on the host
            sequences = Sequences(self.batch.sequences.cu_seqlens_S1, batch.sequences.groups)
            self.batch = replace(self.batch, sequences=sequences)


def _cuda_graphs(stream: torch.cuda.Stream) -> Record:
    """Record CUDA graphs on a stream and those that it forks to, in one memory pool: only one graph runs at a time."""
    pool: Any = torch.cuda.graph_pool_handle()

    def record(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog queries events from its own thread, which other modes forbid while recording
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            answer = work()

        def replay() -> Tensor:
            graph.replay()
            return answer

        return replay

    return record


def _check_attention(system: System, device: torch.device) -> None:
    flash = attends_by_flash(device, system.precision.compute, system.model.shape())
    if device.type == "cuda" and not flash:
        raise ConfigError(
            "compute.compile graphs needs attention in one kernel of fixed size, torch's flash attention: bf16 on an "
            "A100 or newer; set precision.compute to bf16, or compute.compile to default"
        )
