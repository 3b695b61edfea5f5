"""Train the whole model on every rank: forward and backward passes over a rank's parts of the batch.

Gradients are reduced behind the backward pass. With `optimizer.sharded`, a rank updates only a slice of the weights.
Shapes: as in model/bert.py.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from bertbench.common.ranges import BACKWARD, FORWARD, named
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.filler import fill_of
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.arithmetic import computing, set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.encoder import recompute
from bertbench.model.linear import Products
from bertbench.model.loss import Labels, weighted_loss
from bertbench.model.products import Shape, set_products
from bertbench.optim.gradient_sum import bytes_per_step
from bertbench.optim.state import Scalar, logical_weights
from bertbench.results.communication import Communication
from bertbench.training.gradient_path import build_path
from bertbench.training.trainer import Trainer, initial_model, tiny_backward

WARMUP_STEPS = 2  # the first makes kernels and memory, the second finds them


class WholeTrainer(Trainer):
    """The whole model of one rank, built and warmed up."""

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
        self._system, self._world = system, world
        self._model = initial_model(system, seed).to(world.device)
        set_products(self._model, products or {})
        scored = partial(tiny_backward, lambda batch: self._score(batch.to(world.device)), self._model.shape)
        self._path, self._reducer = build_path(system, world, self._model, scored)
        self._model_arithmetic = set_arithmetic(
            self._model, world.device, system.precision.compute, system.compute.compile
        )
        self._model.keep_residual(system.precision.residual)
        if system.parallel.recompute:
            recompute(self._model.layers)
            self._model.between = None  # a layer would keep two inputs
        startup.mark("model")
        self._warm_up(seed)
        startup.mark("warm-up")
        torch.manual_seed(derive(seed, "dropout", world.rank))

    @property
    def model(self) -> Bert:
        """Return the whole model, once all its weights are here. Collective."""
        self._path.weights.ready()
        return self._model

    def communication(self) -> Communication:
        """See `Trainer.communication`."""
        options, sync = self._system.communication, self._system.sync
        shapes, elements = [parameter.shape for parameter in self._model.parameters()], self._reducer.elements
        return Communication(
            clip=self._system.clip.mode,
            compression=options.compression,
            bucket_elements=elements,
            bytes_per_step=bytes_per_step(options, shapes, elements, self._world.size, sync),
            model_arithmetic=self._model_arithmetic,
            optimizer_arithmetic=self._path.arithmetic,
            sync=sync.method,
            transport=self._path.transport,
        )

    def whole(self) -> Bert | None:
        """See `Trainer.whole`."""
        model = self.model
        return model if self._world.leads else None

    def _named(self) -> dict[str, nn.Parameter]:
        return dict(self._model.named_parameters())

    def _weights(self) -> dict[str, torch.Tensor]:
        return logical_weights(self._model)

    def _accumulate(self, parts: Sequence[LoadedPart]) -> torch.Tensor:
        total = torch.zeros((), device=self._world.device)
        for place, loaded in enumerate(parts, start=1):
            with named(FORWARD):
                loss = self._loss(loaded)
            with named(BACKWARD), self._reducer.accumulating(last=place == len(parts)):
                self._path.scale.backward(loss)
            total += loss.detach()
        return total

    def _loss(self, loaded: LoadedPart) -> torch.Tensor:
        return self._loss_of(loaded.batch, loaded.part.masked_lm_weight, loaded.part.next_sentence_weight)

    def _loss_of(self, batch: Batch, masked_lm_weight: Scalar, next_sentence_weight: Scalar) -> torch.Tensor:
        scores = self._score(batch, batch.labels)
        return weighted_loss(scores, *batch.labels, masked_lm_weight, next_sentence_weight)

    def _score(self, batch: Batch, labels: Labels | None = None) -> Any:
        with computing(self._system.precision.compute, self._world.device):
            return self._model(*batch.inputs, labels)

    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        system = self._system
        size = system.samples_per_pass
        for _ in range(WARMUP_STEPS):
            batch = synthetic(size, system.model.max_positions, system.model.vocab_size, generator)
            part = Part(torch.arange(size).numpy(), 1 / len(batch.masked_at_M), 1 / size)
            loaded = LoadedPart(part, fill_of(system)(batch).to(self._world.device))
            self.step(system.sync.delay, [loaded] * system.data.gradient_accumulation_steps)
        if system.launch.rank_speeds == "auto":
            from bertbench.loading.rank_speeds import passes_per_s  # noqa: PLC0415 - of few runs

            self.passes_per_s = passes_per_s(lambda: self._pass(loaded), self._world)
            self._reducer.drop()
        self._evaluate_once(loaded.batch)

    def _evaluate_once(self, batch: Batch) -> None:
        self._model.eval()  # evaluation compiles separately
        with torch.no_grad():
            self._score(batch)
        self._model.train()

    def _pass(self, loaded: LoadedPart) -> None:
        with self._reducer.accumulating(last=False):
            self._loss(loaded).backward()
