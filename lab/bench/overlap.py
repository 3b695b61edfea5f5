"""`lab overlap`: measure how much communication each clip mode leaves exposed, at three bandwidths.

Two ranks on two virtual hosts take real steps. Each step runs with the sum over the ranks and without; the difference
is exposed communication. Modes take turns, so that the machine's other work affects all equally. At the middle
bandwidth the all-reduce of the gradient lasts as long as the backward pass.
"""

import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch
from torch import distributed
from torch.nn import functional

from bertbench.common.progress import Progress
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.model.bert import Bert
from bertbench.model.options import PrecisionName
from bertbench.model.precision import computing
from bertbench.model.shape import BertShape
from bertbench.optim.buckets import Buckets, bucket_table
from bertbench.optim.build import build_optimizer
from bertbench.optim.clip import gradient_norm, make_clip
from bertbench.optim.exchange import Exchange, Wait
from bertbench.optim.gradient_sum import ElementSum
from bertbench.optim.options import ClipMode, OptimizerSettings
from bertbench.optim.reducer import GradientReducer
from lab.bench.network import limit_bandwidth, on_two_hosts

MODES: tuple[ClipMode, ...] = get_args(ClipMode)
# As in BERT-Large, a tenth of the parameters are embeddings, whose gradients are sent last and can't overlap.
_SHAPE = BertShape(2_048, 256, 6, 4, 1_024, 128, hidden_dropout=0.0, attention_dropout=0.0)
_BUCKET_MB = 2.0
_MAX_NORM = 0.1  # small enough to clip always
_FACTORS = (1 / 3, 1.0, 3.0)
_MEASURED = 5  # backward passes and all-reduces that set the middle bandwidth


@dataclass(frozen=True)
class Overlap:
    """Medians of one mode at one bandwidth, on rank 0."""

    mode: ClipMode
    bandwidth_mbit: float
    step_ms: float
    exposed_ms: float
    """Time that the sum over the ranks adds to the step."""
    hidden: float
    """Share of the all-reduce's time that overlaps the backward pass."""


@dataclass(frozen=True)
class Measured:
    """All modes at all bandwidths, and the times that set these bandwidths."""

    parameters: int
    buckets: int
    backward_ms: float
    all_reduce_ms: dict[float, float]
    """By bandwidth: time of all buckets' all-reduces in sequence, without computation."""
    rows: list[Overlap]


def measure(rounds: int, batch: int) -> Measured:
    """Take `rounds` steps of every mode at every bandwidth, with `batch` samples a rank; needs root."""
    measured: Measured = on_two_hosts(_on_rank, rounds, batch)
    return measured


class _Switched(Exchange):
    """Sum over the ranks, or skip it."""

    on = True

    def sum(self, buffer: torch.Tensor) -> Wait:
        """See `Exchange`."""
        return super().sum(buffer) if self.on else self.gather(buffer)


class Arm:
    """A model that clips in one mode."""

    def __init__(
        self,
        mode: ClipMode,
        ranks: int,
        shape: BertShape,
        device: torch.device,
        precision: PrecisionName,
        bucket_mb: float | None,
    ) -> None:
        self.model = Bert(shape)
        self.model.initialize(torch.Generator().manual_seed(1))
        self.model.to(device)
        self.sum = _Switched()
        self._computing = partial(computing, precision, device)
        order = list(self.model.parameters())[::-1]  # about the order of the gradients
        buckets = Buckets(bucket_table(order, bucket_mb))
        clip, norm = make_clip(mode, _MAX_NORM, ranks, len(buckets.all)), partial(gradient_norm, order)
        self.reducer = GradientReducer(buckets, clip, ElementSum(self.sum), norm)
        self._optimizer, _ = build_optimizer(self.model, OptimizerSettings(name="adam", learning_rate=1e-4))

    def step(self, batch: Batch) -> tuple[float, float]:
        """Return milliseconds of a whole step, and from the start of its backward pass to the end of the reduction.

        CPU only: a GPU has only queued the work by then.
        """
        began = time.perf_counter()
        with self._computing():
            scores = self.model(*batch.inputs)
        loss = functional.cross_entropy(scores.masked_lm_MV.float(), batch.masked_labels_M)
        loss += functional.cross_entropy(scores.next_sentence_S2.float(), batch.next_sentence_S)
        forward = time.perf_counter()
        loss.backward()
        reduced = self.reducer.finish()
        backward = time.perf_counter()
        self._optimizer.step(1e-4, reduced.factor)
        self.reducer.drop()
        return 1e3 * (time.perf_counter() - began), 1e3 * (backward - forward)


def _on_rank(world: World, rounds: int, size: int) -> Measured:
    progress = Progress(enabled=world.leads)
    arms = {mode: Arm(mode, world.size, _SHAPE, world.device, "fp32", _BUCKET_MB) for mode in MODES}
    batch = synthetic(size, _SHAPE.max_positions, _SHAPE.vocab_size, torch.Generator().manual_seed(world.rank))

    def step(mode: ClipMode, summed: bool) -> tuple[float, float]:
        arms[mode].sum.on = summed
        world.barrier()
        return arms[mode].step(batch)

    for mode in MODES:
        step(mode, summed=True)  # the first makes memory
    backward_ms = statistics.median(step("none", summed=False)[1] for _ in range(_MEASURED))
    buckets = arms["none"].reducer.elements
    middle = _middle_bandwidth(world, buckets, backward_ms)
    all_reduce_ms: dict[float, float] = {}
    rows = []
    for bandwidth in (float(f"{factor * middle:.3g}") for factor in _FACTORS):
        limit_bandwidth(bandwidth)
        all_reduce_ms[bandwidth] = _all_reduce_ms(world, buckets)
        progress.message(
            f"{bandwidth:,.0f} Mbit/s: the all-reduce lasts {all_reduce_ms[bandwidth]:,.0f} ms, "
            f"the backward pass {backward_ms:,.0f} ms; {rounds} steps of each mode"
        )
        times: dict[ClipMode, list[tuple[float, float]]] = {mode: [] for mode in MODES}
        for number in range(rounds):
            for mode in MODES if number % 2 else reversed(MODES):
                alone, _ = step(mode, summed=False)
                times[mode].append((step(mode, summed=True)[0], alone))
        for mode, own in times.items():
            exposed = max(0.0, statistics.median(taken - alone for taken, alone in own))
            hidden = 1 - min(1.0, exposed / all_reduce_ms[bandwidth])
            taken_ms = statistics.median(taken for taken, _ in own)
            rows.append(Overlap(mode, bandwidth, round(taken_ms, 1), round(exposed, 1), round(hidden, 3)))
    return Measured(sum(buckets), len(buckets), backward_ms, all_reduce_ms, rows)


def _middle_bandwidth(world: World, buckets: tuple[int, ...], backward_ms: float) -> float:
    """Return the megabits a second at which the all-reduce lasts `backward_ms`, the same on every rank."""
    backward_ms = world.sum(torch.tensor(backward_ms)).item() / world.size
    # a ring over R ranks sends 2 (R - 1) / R of the bytes
    wanted = 4 * sum(buckets) * 2 * (world.size - 1) / world.size * 8 / (backward_ms * 1e3)
    limit_bandwidth(wanted)
    taken = world.sum(torch.tensor(_all_reduce_ms(world, buckets))).item() / world.size
    return wanted * taken / backward_ms


def _all_reduce_ms(world: World, buckets: tuple[int, ...]) -> float:
    buffers = [torch.zeros(elements) for elements in buckets]
    taken = []
    for _ in range(_MEASURED):
        world.barrier()
        began = time.perf_counter()
        for buffer in buffers:
            distributed.all_reduce(buffer)
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)
