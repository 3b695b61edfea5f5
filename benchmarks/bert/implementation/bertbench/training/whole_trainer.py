"""Train a whole model on every rank: build it, warm it up, and run its passes forward and backward.

`graph_trainer.py` replays its steps as CUDA graphs; `layout_trainer.py` is for models that are split over ranks.
Shapes: as in model/bert.py.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import BACKWARD, FORWARD
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.filler import BatchSize, filled_to_size
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.arithmetic import computing, set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.encoder import recompute
from bertbench.model.linear import Products
from bertbench.model.logical_tensors import logical_weights
from bertbench.model.products import Shape, set_products
from bertbench.model.shape import BertShape
from bertbench.runs.metrics import StepReport
from bertbench.training.gradient_path import build_path
from bertbench.training.task import PRE_TRAINING, Task
from bertbench.training.technique import EVERY_STEP, Technique
from bertbench.training.trainer import Trainer, full_lengths

if TYPE_CHECKING:
    from bertbench.model.fp8_scaling import DelayedScaling

WARMUP_STEPS = 2  # the first compiles kernels and allocates memory, the second uses them
_SCALED_FROM = 8  # synthetic samples whose magnitudes determine the fp8 scales of the first step
_SIZES_S = 2.0  # limit for passes over batches of other sizes: enough for all with a small model, none with a large one


class WholeTrainer(Trainer):
    """The whole model on one rank, built and warmed up; gradients are reduced during the backward pass.

    With `optimizer.sharded`, a rank updates only a slice of the weights.
    """

    def __init__(
        self,
        system: System,
        world: World,
        seed: int,
        startup: Startup | None = None,
        products: dict[Shape, Products] | None = None,
        warm_up_sizes: Iterable[BatchSize] = (),
        task: Task = PRE_TRAINING,
        warm_up_lengths_S: Integers | None = None,
        technique: Technique = EVERY_STEP,
    ) -> None:
        """Build and warm up; mark the end of each in `startup`. `products` defaults to torch's own.

        The warm-up takes steps with samples of the lengths `warm_up_lengths_S`. They are those of a large part of the
        run, so that the warm-up allocates the memory that the run needs; a step with more tokens allocates more. By
        default all samples have full length. Then it runs passes over batches of `warm_up_sizes`, because code is
        generated for each size, which would otherwise take time on the clock.
        """
        self._system = system
        self._world = world
        self._warm_up_sizes = warm_up_sizes
        self._warm_up_lengths_S = full_lengths(system) if warm_up_lengths_S is None else warm_up_lengths_S
        self._task = task
        self._computing = computing(system.precision.compute, world.device)
        self._model = task.initial_model(system, seed).to(world.device)
        self._scaling: DelayedScaling | None = None
        if system.precision.compute == "fp8":
            self._scaling = self._multiply_in_fp8(seed)
        set_products(self._model, products or {})
        self._path = build_path(system, world, self._model, self._run_tiny_backward, technique)
        self._model_arithmetic = set_arithmetic(
            self._model, world.device, system.precision.compute, system.compute.compile
        )
        self._model.keep_residual(system.precision.residual)
        if system.parallel.recompute:
            recompute(self._model.layers)
            self._model.between = None  # with joined layers, each would have to keep two inputs
        self._warm_up(seed, startup)
        if self._scaling is not None:
            self._scaling.reset()

    def _multiply_in_fp8(self, seed: int) -> "DelayedScaling":
        """Convert the model to fp8, with scales from a pass over synthetic samples in bf16. Collective.

        Raises ConfigError if the device doesn't support fp8.
        """
        from bertbench.model.fp8_linear import multiply_in_fp8  # noqa: PLC0415 - for few runs

        system = self._system
        generator = torch.Generator().manual_seed(derive(seed, "scales"))
        samples = min(_SCALED_FROM, system.samples_per_pass)
        lengths_S = np.full(samples, system.model.max_positions)
        part, batch = self._task.synthetic_part(system, lengths_S, generator)
        loaded = LoadedPart(part, batch.to(self._world.device))
        share_of_batch = samples / system.global_batch_size  # a step's loss is a mean over its global batch

        def run_backward() -> None:
            (share_of_batch * self._part_loss(loaded)).backward()

        scaling = multiply_in_fp8(self._model, run_backward)
        scaling.start(self._world.largest)
        return scaling

    @property
    def model(self) -> Bert:
        """Return the whole model, after all its weights have arrived. Collective."""
        self._path.weights.ready()
        return self._model

    def gather_model(self) -> Bert | None:
        """Wait for all weights and return the model on rank 0; see `Trainer.gather_model`."""
        model = self.model
        return model if self._world.leads else None

    def _update(self, number: int, loss: Tensor) -> StepReport:
        report = super()._update(number, loss)
        if self._scaling is not None:
            self._scaling.advance(self._world.largest)
        return report

    def state(self) -> dict[str, Tensor]:
        """Return the state that every trainer has, and fp8's scales; see `Trainer.state`."""
        state = super().state()
        if self._scaling is not None:
            state |= self._scaling.state()
        return state

    def resume(self, steps: int) -> None:
        """Continue from the restored state, after `steps` steps; see `Trainer.resume`."""
        super().resume(steps)
        if self._scaling is not None:
            self._scaling.publish()

    def _named_parameters(self) -> dict[str, nn.Parameter]:
        return dict(self._model.named_parameters())

    def _logical_weights(self) -> dict[str, Tensor]:
        return logical_weights(self._model)

    def _accumulate(self, parts: Sequence[LoadedPart]) -> Tensor:
        total_loss = torch.zeros((), device=self._world.device)
        for number, loaded in enumerate(parts, start=1):
            is_last = number == len(parts)
            with in_phase(FORWARD):
                loss = self._part_loss(loaded)
            with in_phase(BACKWARD), self._path.reducer.accumulating(last=is_last):
                self._path.scale.backward(loss)
            total_loss += loss.detach()
        return total_loss

    def _part_loss(self, loaded: LoadedPart) -> Tensor:
        """Return this rank's share of the loss: weighted sums over the part's samples."""
        with self._computing:
            return self._task.loss(self._model, loaded.part, loaded.batch)

    @torch.no_grad()
    def outputs(self, batch: Batch) -> Any:
        """Return the model's outputs for a batch; the model must be in evaluation mode."""
        return self._score(batch)

    def _score(self, batch: Batch) -> Any:
        with self._computing:
            return self._model(batch.inputs)

    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        system = self._system
        for _ in range(WARMUP_STEPS):
            loaded = self._synthetic_part(generator)
            began = perf_counter()
            self.step(0, [loaded] * system.data.gradient_accumulation_steps)
            step_s = perf_counter() - began
        passes_in_time = int(_SIZES_S / step_s)
        for sized in islice(self._parts_of_sizes(loaded.part, generator), passes_in_time):
            self._pass(sized)
        self._path.reducer.drop()
        self._evaluate_once(loaded.batch)

    def _synthetic_part(self, generator: torch.Generator) -> LoadedPart:
        """Return the samples of one pass, on the device."""
        part, batch = self._task.synthetic_part(self._system, self._warm_up_lengths_S, generator)
        return LoadedPart(part, batch.to(self._world.device))

    def _parts_of_sizes(self, part: Part, generator: torch.Generator) -> Iterator[LoadedPart]:
        """Yield a batch of each of the run's sizes: one short sample and filler, with the loss weights of `part`."""
        for size in self._warm_up_sizes:
            length = math.ceil(size.tokens / size.sequences)
            batch = synthetic(1, length, self._system.model.vocab_size, generator)
            yield LoadedPart(part, filled_to_size(batch, size).to(self._world.device))

    def _evaluate_once(self, batch: Batch) -> None:
        self._model.eval()  # evaluation is compiled separately
        with torch.no_grad():
            self._score(batch)
        self._model.train()

    def _pass(self, loaded: LoadedPart) -> None:
        """Run one forward and backward pass, which adds to the gradients."""
        with self._path.reducer.accumulating(last=False):
            self._part_loss(loaded).backward()

    def _run_tiny_backward(self) -> None:
        def score(batch: Batch) -> Any:
            return self._score(batch.to(self._world.device))

        tiny_backward(score, self._model.shape, self._task)


def tiny_backward(score: Callable[[Batch], Any], shape: BertShape, task: Task = PRE_TRAINING) -> None:
    """Run a backward pass on a few tokens, to find the order of gradients."""
    tokens = min(8, shape.max_positions)
    outputs = score(synthetic(1, tokens, shape.vocab_size, torch.Generator().manual_seed(1)))
    task.sum_of_outputs(outputs).backward()
