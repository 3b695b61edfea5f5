"""Take one optimizer step: forward and backward over a rank's parts, overlapped reduction, clip, update.

Shapes: as in model/bert.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from bertbench.common.ranges import BACKWARD, FORWARD, OPTIMIZER, named, reduced_behind
from bertbench.common.seeding import derive
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.filler import filled
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.activation_checkpoint import recompute
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.linear import Products
from bertbench.model.loss import weighted_loss
from bertbench.model.precision import computing
from bertbench.model.products import Shape, set_products
from bertbench.model.scores import Labels
from bertbench.optim.average import WeightAverage, replaced
from bertbench.optim.clip import remaining_clipping
from bertbench.optim.distributed import SlicedOptimizer
from bertbench.optim.scaler import LossScaler
from bertbench.optim.slices import LogicalSlices
from bertbench.optim.state import LogicalTensors, Resumable, Scalar, logical_weights
from bertbench.optim.traffic import Communication, bytes_per_step
from bertbench.results.metrics import StepReport
from bertbench.training.data_parallel import data_parallel, local_updates, memory_for_sums, move_to_buckets
from bertbench.training.rank_speeds import passes_per_s
from bertbench.training.trainer import initial_model, tiny_backward

if TYPE_CHECKING:  # gpu_check.sh trains without pydantic
    from bertbench.config import System

_WARMUP_STEPS = 2  # DDP's first backward pass fills one bucket; the final ones exist only after it


class DDPTrainer:
    """Train the whole model on every rank; gradients are summed during the backward pass.

    With `optimizer.sharded`, a rank keeps only a slice of the optimizer's state.
    """

    def __init__(
        self,
        system: System,
        world: World,
        seed: int,
        startup: Startup | None = None,
        products: dict[Shape, Products] | None = None,
    ) -> None:
        """Build and warm up; `startup` gets a mark at the end of each. `products` defaults to torch's own."""
        startup = startup or Startup()
        self._system = system
        self._world = world
        self._model = initial_model(system, seed).to(world.device)
        set_products(self._model, products or {})
        slices = None
        if system.optimizer.sharded:
            slices = move_to_buckets(system, world, self._model, self._tiny_backward)
        self._model_arithmetic = set_arithmetic(
            self._model, world.device, system.precision.compute, system.compute.compile
        )
        self._model.keep_residual(system.precision.residual)
        if system.parallel.recompute:
            recompute(self._model.layers)
            self._model.joins_layers = False  # a layer would keep two inputs
        self._parameters = list(self._model.parameters())
        self._scaler = (
            LossScaler(system.precision.initial_loss_scale, world.size, world.device) if system.scales_loss else None
        )
        self._parallel, self._reducer, self._norm, self.optimizer, self._arithmetic = data_parallel(
            system, world, self._model, slices, self._scaler
        )
        self._local = local_updates(system, world, self._model)
        self._average: WeightAverage | None = None
        if system.optimizer.ema_decay:
            fused = self._model.fused_parameters()
            held = LogicalTensors if slices is None else partial(LogicalSlices, slices.buckets)
            self._average = WeightAverage(held(self._parameters, fused), system.optimizer.ema_decay)
        self._schedule = system.learning_rate
        self.rate = 1.0
        """Warm-up parts that this rank computes per second, if ranks' shares follow their measured speed."""
        if self._scaler is not None:  # the host doesn't know how many steps were skipped
            rates = [self._schedule.rate(step) for step in range(max(system.max_steps, _WARMUP_STEPS))]
            self._rates = torch.tensor(rates, dtype=torch.float64, device=world.device)
        startup.mark("model")
        self._warm_up(seed)
        startup.mark("warm-up")
        torch.manual_seed(derive(seed, "dropout", world.rank))

    @property
    def model(self) -> Bert:
        """Return the whole model with all weights; with local updates, the ranks' mean. Collective."""
        self._settle()
        if self._local is not None:
            self._local.show_mean()
        return self._model

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Replace the weights by the average inside the context, if evaluations use one. Collective."""
        if self._average is None:
            yield
            return
        self._settle()
        with replaced(*self._average.read_out()):
            self._gather()
            yield
            self._settle()
        self._gather()

    def _settle(self) -> None:
        if isinstance(self.optimizer, SlicedOptimizer):
            self.optimizer.settle()

    def _gather(self) -> None:
        if isinstance(self.optimizer, SlicedOptimizer):
            self.optimizer.gather()

    def communication(self) -> Communication:
        """Return how gradients are sent and applied, for the run's output and records."""
        options, outer = self._system.communication.options(), self._system.sync.outer
        shapes = [parameter.shape for parameter in self._parameters]
        return Communication(
            clip=self._system.clip.mode,
            compression=options.compression,
            bucket_elements=self._reducer.buckets,
            bytes_per_step=bytes_per_step(shapes, options, self._reducer.buckets, self._world.size, outer),
            model_arithmetic=self._model_arithmetic,
            optimizer_arithmetic=self._arithmetic,
            sync=self._system.sync.method,
            transport="shared memory" if memory_for_sums(self._system, self._world) else "collectives",
        )

    def step(self, number: int, parts: list[LoadedPart]) -> StepReport:
        """Take step `number`, counted from 0."""
        if self._local is not None:
            self._local.put_back()
        loss = torch.zeros((), device=self._world.device)
        for place, part in enumerate(parts, start=1):
            last = place == len(parts)
            with nullcontext() if last else self._parallel.no_sync():
                with named(FORWARD):
                    part_loss = self._loss(part)
                with named(BACKWARD):
                    if last:
                        reduced_behind(part_loss)
                    (part_loss if self._scaler is None else part_loss * self._scaler.scale).backward()
            loss += part_loss.detach()
        clipped = self._reducer.finish()
        with named(OPTIMIZER):
            report = self._update(number, loss, clipped)
            if self._average is not None:
                self._average.update(number + 1)
        # DDP copies a new gradient into its bucket; an existing one costs a zeroing, a read and an addition
        self._parallel.zero_grad(set_to_none=not self._system.optimizer.sharded)
        if self._local is None:
            return report
        self._local.took(number + 1)
        # each rank has its own norm, and metrics sum losses over ranks: a non-finite norm reaches all through the loss
        return report._replace(loss=report.loss + 0 * report.norm)

    def _update(self, number: int, loss: torch.Tensor, clipped: torch.Tensor | None) -> StepReport:
        """Update the weights from the reduced gradient, without reading back from the device."""
        clip, scaler = self._system.clip, self._scaler
        norm = self._norm()
        if scaler is not None:
            scale = scaler.scale.clone()
            norm /= scale
        factor, clipped = remaining_clipping(clip.mode, norm, clip.max_norm, clipped)
        if scaler is None:
            rate = self._schedule.rate(number)
            if number >= self._system.sync.delay:  # earlier steps have no delayed gradient yet
                self.optimizer.step(rate, factor)
            return StepReport(loss, norm, rate, clipped, None)
        taken = norm.isfinite()  # of the reduced gradient, so all ranks agree
        device_rate = torch.take(self._rates, scaler.taken)
        unscale = scale.reciprocal() if factor is None else factor / scale
        self.optimizer.step(device_rate, torch.where(taken, unscale, 0), taken.float())
        scaler.update(taken)
        return StepReport(loss, norm, device_rate, clipped, scale)

    def _loss(self, loaded: LoadedPart) -> torch.Tensor:
        part, batch = loaded
        return self._loss_of(batch, part.masked_lm_weight, part.next_sentence_weight)

    def _loss_of(self, batch: Batch, masked_lm_weight: Scalar, next_sentence_weight: Scalar) -> torch.Tensor:
        scores = self._score(self._parallel, batch, batch.labels)
        return weighted_loss(scores, *batch.labels, masked_lm_weight, next_sentence_weight)

    def _warm_up(self, seed: int) -> None:
        """Run untimed steps on synthetic batches, then restore weights and optimizer."""
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        generator = torch.Generator().manual_seed(derive(seed, "warm-up"))
        batch = self._take_warm_up_steps(generator)
        self.model.eval()  # evaluation compiles separately
        with torch.no_grad():
            self._score(self._model, batch)
        self.model.train()
        self.model.load_state_dict(weights)
        self.optimizer.reset()
        if self._average is not None:
            self._average.reset()
        self._reducer.reset()
        if self._local is not None:
            self._local.reset()
        if self._scaler is not None:
            self._scaler.reset()

    def _take_warm_up_steps(self, generator: torch.Generator) -> Batch:
        """Take steps like the run's, and return one of their batches."""
        system = self._system
        size = system.local_batch // system.data.gradient_accumulation_steps
        for _ in range(_WARMUP_STEPS):
            batch = synthetic(size, system.model.max_positions, system.model.vocab_size, generator)
            part = Part(torch.arange(size).numpy(), 1 / len(batch.masked_at_M), 1 / size)
            loaded = LoadedPart(part, (filled(batch) if system.fills_batches else batch).to(self._world.device))
            self.step(system.sync.delay, [loaded] * system.data.gradient_accumulation_steps)
        if system.launch.rank_speeds == "auto":
            self.rate = passes_per_s(lambda: self._pass(loaded), self._world)
            self._parallel.zero_grad(set_to_none=not self._system.optimizer.sharded)
        return loaded.batch

    def _pass(self, loaded: LoadedPart) -> None:
        with self._parallel.no_sync():
            self._loss(loaded).backward()

    def _tiny_backward(self) -> None:
        device = self._world.device
        tiny_backward(lambda batch: self._score(self._model, batch.to(device)), self._model.shape)

    def _score(self, model: Callable[..., Any], batch: Batch, labels: Labels | None = None) -> Any:
        with computing(self._system.precision.compute, self._world.device):
            return model(*batch.inputs, labels)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory: weights, moments, loss scale and sums in progress."""
        if self._local is None:
            return self._own_state(self.model)
        self._local.put_back()
        own = self._own_state(self._model)
        return {f"rank.{self._world.rank}.{name}": tensor for name, tensor in own.items()} | self._local.state()

    def _own_state(self, model: Bert) -> dict[str, torch.Tensor]:
        assert isinstance(self.optimizer, Resumable), "the configuration refuses snapshots with apex"
        names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        parts = {
            "model": logical_weights(model),
            "optimizer": self.optimizer.moments(names),
            "average": {} if self._average is None else self._average.state(names),
            "scaler": {} if self._scaler is None else self._scaler.state(),
        }
        state = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        return state | self._reducer.state()

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps, once their `state` is restored."""
        assert isinstance(self.optimizer, Resumable), "the configuration refuses snapshots with apex"
        taken = max(steps - self._system.sync.delay, 0)
        self.optimizer.resume(taken if self._scaler is None else self._scaler.taken.double())
        if self._local is not None:
            self._local.resume(steps)

    def whole(self) -> Bert | None:
        """Return the model on rank 0."""
        model = self.model
        return model if self._world.leads else None

    def close(self) -> None:
        """Release DDP and its hook; call it before the process group ends."""
        self._settle()
        self._reducer.reset()  # wait for sums in progress before the group ends
        del self._parallel
