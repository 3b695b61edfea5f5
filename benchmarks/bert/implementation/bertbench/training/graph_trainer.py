"""Replay the whole optimizer step as a CUDA graph, one for each batch size; record all graphs before the clock starts.

    init    for every bin: take a step; then for every bin: record it (parts that only accumulate separately)
    step    copy the batch into its bin's memory -> replay -> copy the report out

A replay launches forward pass, backward pass, reduction, clipping and update at once, without Python. Values that
change between steps are on the device: the batch, its weights in the loss, the count of steps, and learning rates. On a
CPU nothing is recorded: the same functions run again on the same memory, and tests replay recorded calls.
`gpu_check.sh` records graphs on a GPU and compares their losses.
Shapes: as in model/bert.py.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from bertbench.common.errors import ConfigError
from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import REPLAY
from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.bins import Bins
from bertbench.loading.filler import BatchSize, filled_to_size, size_of
from bertbench.loading.loader import LoadedPart
from bertbench.model.arithmetic import attends_by_flash
from bertbench.model.linear import Products
from bertbench.model.products import Shape
from bertbench.model.sequences import EqualLengths, Sequences
from bertbench.runs.metrics import StepReport
from bertbench.training.recording import Record, is_out_of_memory, launch_share, recorder, saves_time
from bertbench.training.whole_trainer import WARMUP_STEPS, WholeTrainer


class GraphTrainer(WholeTrainer):
    """A WholeTrainer that replays recorded steps.

    Raises ConfigError on a GPU on which attention isn't one kernel of fixed size.
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
        only_if_faster: bool = False,
    ) -> None:
        """Build, warm up and record; `record` replaces CUDA graphs in tests.

        With `only_if_faster`, steps run without graphs if the host launches them much faster than the device works.
        """
        device = world.device
        self._bins = bins
        self._accumulates = system.data.gradient_accumulation_steps > 1
        self._stream = self._new_stream(device)
        self._only_if_faster = only_if_faster
        self._record = record or recorder(self._stream)
        _check_attention(system, device)
        self._loss_sum = torch.zeros((), device=device)
        self._slots: dict[BatchSize, _Slot] = {}
        self._replays: dict[tuple[BatchSize, bool], Callable[[], Tensor]] = {}
        # autograd adds up a gradient on the stream that first used its weight, which must be the stream of recording
        with self._on_own_stream():
            super().__init__(system, world, seed, startup, products)

    @staticmethod
    def _new_stream(device: torch.device) -> torch.cuda.Stream | None:
        return torch.cuda.Stream(device) if device.type == "cuda" else None

    def step(self, number: int, parts: Sequence[LoadedPart]) -> StepReport:
        """Take step `number`; the device keeps its own count."""
        del number
        with in_phase(REPLAY):
            self._gather_before_parts()
            for part_number, part in enumerate(parts, start=1):
                report_4 = self._compute(part, last=part_number == len(parts))
            self._path.weights.replayed()
        loss, norm, rate, clipped = report_4.clone().unbind()  # a copy, because the next replay overwrites the report
        return StepReport(loss, norm, rate, clipped, loss_scale=None)

    def _gather_before_parts(self) -> None:
        """Gather sharded weights before a step of several parts, because only its last part may contain collectives.

        For the other parts, ranks may replay different graphs. This wait isn't hidden. On eight H100, it takes 3.3 ms
        of a step that has at least two parts of 125 ms each.
        """
        if self._accumulates:
            self._path.weights.ready()

    def _compute(self, part: LoadedPart, last: bool) -> Tensor:
        """Replay the graph for a part's size; of a step's last part, return [loss, norm, rate, clipped]."""
        size = size_of(part.batch)
        self._slots[size].load(part)
        return self._replays[size, last]()

    @contextmanager
    def _on_own_stream(self) -> Iterator[None]:
        """Work on the stream on which the graphs were recorded, in order with the work of the current stream."""
        if self._stream is None:
            yield
            return
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    def close(self) -> None:
        """Release the graphs first, because NCCL's communicator waits for graphs that contain its calls."""
        self._replays.clear()
        self._slots.clear()
        if self._stream is not None:
            torch.cuda.synchronize(self._stream.device)
        super().close()

    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        """Take a step of every bin and evaluate a batch; only then record the steps, each the largest bin first.

        Graphs keep the memory of the largest recorded step for themselves. A step without a graph would need as much
        again, so none follows the first recording. With the largest step first, the others fit into its memory.
        """
        steps_on_device = torch.zeros((), dtype=torch.float64, device=self._world.device)
        self.optimizer.resume(steps_on_device)  # from now on, the optimizer counts on the device
        kinds_of_part = (False, True) if self._accumulates else (True,)  # True for the last part of a step
        largest = self._bins.all[-1]
        works: dict[tuple[BatchSize, bool], Callable[[], Tensor]] = {}
        for size in reversed(self._bins.all):
            slot = _Slot(self._batch_of_size(size, generator), self._system.model.max_positions)
            self._slots[size] = slot
            for last in kinds_of_part:
                works[size, last] = partial(self._last_part if last else self._earlier_part, slot)
            for _ in range(WARMUP_STEPS if size == largest else 1):
                for last in kinds_of_part:
                    self._gather_before_parts()
                    works[size, last]()
        self._evaluate_once(self._slots[largest].batch)
        if self._only_if_faster and not self._graphs_save_time(works):
            self._repeat(works)
        else:
            self._record_or_repeat(works)
        self._loss_sum.zero_()

    def _graphs_save_time(self, works: dict[tuple[BatchSize, bool], Callable[[], Tensor]]) -> bool:
        """Return whether graphs shorten the smallest step on any rank; print why not. Collective."""
        smallest = self._bins.all[0]

        def take_step() -> None:
            for (size, _), work in works.items():
                if size == smallest:
                    self._gather_before_parts()
                    work()

        share = max(self._world.from_all(launch_share(take_step, self._world.device)))
        if saves_time(share):
            return True
        if self._world.leads:
            print(
                f"steps aren't recorded as CUDA graphs: the host launches a step in {share:.0%} of its time; "
                "compute.compile=graphs records them all the same",
                file=sys.stderr,
                flush=True,
            )
        return False

    def _record_or_repeat(self, works: dict[tuple[BatchSize, bool], Callable[[], Tensor]]) -> None:
        """Record each part of a step. Collective.

        If memory is short on any rank, all ranks run the parts without graphs. Recording launches nothing, so a rank
        that fails leaves no work in which the others wait for it.
        """
        problem = ""
        try:
            for key, work in works.items():
                self._gather_before_parts()
                self._replays[key] = self._record(work)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            problem = f"rank {self._world.rank} has too little memory"
        problems = [text for text in self._world.from_all(problem) if text]
        if not problems:
            return
        self._replays.clear()
        self._path.reducer.reset()
        self._repeat(works)
        if self._world.leads:
            print(
                f"warning: steps aren't recorded as CUDA graphs: {problems[0]} for them; steps run without graphs, "
                "which is slower; raise data.gradient_accumulation_steps",
                file=sys.stderr,
                flush=True,
            )

    def _repeat(self, works: dict[tuple[BatchSize, bool], Callable[[], Tensor]]) -> None:
        for key, work in works.items():
            self._replays[key] = partial(self._run_on_own_stream, work)

    def _run_on_own_stream(self, work: Callable[[], Tensor]) -> Tensor:
        with self._on_own_stream():
            return work()

    def _batch_of_size(self, size: BatchSize, generator: torch.Generator) -> Batch:
        """Return a synthetic batch that fills a bin."""
        model = self._system.model
        samples = self._system.samples_per_pass
        length = (size.tokens - size.sequences) // samples
        length = max(1, min(length, model.max_positions))
        batch = synthetic(samples, length, model.vocab_size, generator)
        batch = replace(
            batch,
            masked_at_M=batch.masked_at_M[: size.masked],
            masked_labels_M=batch.masked_labels_M[: size.masked],
        )
        return filled_to_size(batch, size).to(self._world.device)

    def _earlier_part(self, slot: "_Slot") -> Tensor:
        """Add the gradient of a part that isn't a step's last one; return the sum of the step's losses so far."""
        self._add_gradient(slot, last=False)
        return self._loss_sum

    def _last_part(self, slot: "_Slot") -> Tensor:
        """Add the gradient of a step's last part, and update; return [loss, norm, rate, clipped]."""
        self._add_gradient(slot, last=True)
        report = self._update(0, self._loss_sum)
        report_4 = torch.stack((report.loss, report.norm, torch.as_tensor(report.rate), report.clipped))
        self._loss_sum.zero_()
        return report_4

    def _add_gradient(self, slot: "_Slot", last: bool) -> None:
        """Add a part's gradient to the step's, and its loss to the sum.

        If weights are sharded, the previous step's are gathered during the forward pass, and none at the end.
        """
        if not self._accumulates:
            self._path.weights.begin_step()
        masked_lm_weight, next_sentence_weight = slot.weights_2.unbind()
        with self._computing:
            sums = self._model.loss_sums(slot.batch.inputs, slot.batch.labels)
        loss = sums.weighted(masked_lm_weight, next_sentence_weight)
        with self._path.reducer.accumulating(last):
            loss.backward()
        self._loss_sum.add_(loss.detach())


class _Slot:
    """The memory of one bin's batches."""

    def __init__(self, batch: Batch, longest: int) -> None:
        cu_seqlens_S1 = batch.sequences.cu_seqlens_S1
        groups = batch.sequences.groups
        if cu_seqlens_S1.is_cuda:  # the host passes the longest length to the flash kernel, so pass the limit once
            groups = (EqualLengths(0, len(cu_seqlens_S1) - 1, longest),)
        self.batch = replace(batch, sequences=Sequences(cu_seqlens_S1, groups))
        self.weights_2 = torch.zeros(2, device=cu_seqlens_S1.device)
        """Weights of both heads' losses."""

    def load(self, loaded: LoadedPart) -> None:
        """Copy a part into this memory without waiting for the device."""
        part, batch = loaded
        torch._foreach_copy_(self.batch.tensors, batch.tensors)
        self.weights_2[0].fill_(part.masked_lm_weight)
        self.weights_2[1].fill_(part.next_sentence_weight)
        if not self.weights_2.is_cuda:  # on a CPU, attention needs the layout of sequences on the host
            sequences = Sequences(self.batch.sequences.cu_seqlens_S1, batch.sequences.groups)
            self.batch = replace(self.batch, sequences=sequences)


def _check_attention(system: System, device: torch.device) -> None:
    flash = attends_by_flash(device, system.precision.compute, system.model.shape())
    if device.type == "cuda" and not flash:
        raise ConfigError(
            "compute.compile graphs needs attention as one kernel of fixed size, which is torch's flash attention: "
            "bf16 on an A100 or newer; set precision.compute to bf16, or compute.compile to default"
        )
