"""Take one optimizer step of a model that is split over ranks; `DDPTrainer` serves whole models.

All layouts take the same step up to rounding: losses and gradients are sums over the global batch, norms and trust
ratios use whole tensors (docs/parallelism.md).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import distributed, nn

from bertbench.common.ranges import ALL_REDUCE, BACKWARD, FORWARD, OPTIMIZER, named
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.activation_checkpoint import recompute
from bertbench.model.arithmetic import choose_mode, describe_compute
from bertbench.model.bert import Bert
from bertbench.optim.average import WeightAverage, replaced
from bertbench.optim.clip import remaining_clipping
from bertbench.optim.state import LogicalTensors, Scalar, local, logical_weights, whole_tensor
from bertbench.optim.traffic import Communication
from bertbench.parallel.fsdp import shard
from bertbench.parallel.gradients import Gradients
from bertbench.parallel.microbatches import even
from bertbench.parallel.optimizer import shard_optimizer
from bertbench.parallel.pipeline import Pipeline
from bertbench.parallel.process_groups import ProcessGroups
from bertbench.parallel.stage import Stage, logical_name
from bertbench.parallel.tensor_parallel import norm_parameters, split_layers
from bertbench.results.metrics import StepReport
from bertbench.training.trainer import initial_model


class LayoutTrainer:
    """This rank's part of the model with its optimizer; `step` is all of the timed work.

    `tokens` is the budget of a microbatch, if the layout has a pipeline.
    """

    def __init__(self, system: System, world: World, seed: int, tokens: int, startup: Startup | None = None) -> None:
        """Build and warm up; `startup` gets a mark at the end of each."""
        startup = startup or Startup()
        self._system = system
        self._world = world
        parallel, layout = system.parallel, system.layout
        self.groups = ProcessGroups(layout, world, parallel.fully_shard)
        place = self.groups.place
        # tensor-parallel layers have no compiled pieces (Stage.fuse); the configuration refuses to ask for them
        self._mode, pieces = choose_mode(world.device, "none" if layout.tensor > 1 else system.compute.compile)
        whole = initial_model(system, seed)
        stages = [
            Stage(whole, number, layout.stages, system.precision.compute)
            for number in range(place.pipeline, layout.stages, layout.pipeline)
        ]
        for stage in stages:
            if not parallel.fully_shard:  # FSDP2 moves one layer at a time and keeps its shard
                stage.to(world.device)
            if parallel.recompute:
                recompute(stage.layers.values())
            if layout.tensor > 1:
                split_layers(stage, self.groups.mesh("tensor", self.groups.tensor), parallel.sequence)
            if parallel.fully_shard:
                shard(stage, self.groups.mesh("data", self.groups.data))
            if self._mode != "none":
                stage.fuse()
        self.model = nn.ModuleList(stages)
        self._model_arithmetic = describe_compute(world.device, system.precision.compute, system.model.shape(), pieces)
        # kept, because FSDP2 replaces the tensors while it computes
        self._named = {
            logical_name(name): parameter for stage in stages for name, parameter in stage.named_parameters()
        }
        self.parameters = list(self._named.values())
        words = next((stage.words for stage in stages if stage.words is not None), None)
        shares = layout.token_shares
        of_shares = [parameter for stage in stages for parameter in norm_parameters(stage)] if shares > 1 else []
        self.gradients = Gradients(self.parameters, words, self.groups, parallel.fully_shard, system.parts, of_shares)
        self.optimizer = shard_optimizer(self.parameters, system.optimizer.options(), self.groups.shards)
        decay = system.optimizer.ema_decay
        self._average = WeightAverage(LogicalTensors(self.parameters, {}), decay) if decay else None
        self._stage = stages[0]
        self.pipeline = (
            Pipeline(
                stages, self.groups, parallel.schedule, parallel.microbatches, -(-tokens // shares) * shares,
                system.model.hidden_size, system.precision.compute,
            )
            if layout.pipeline > 1
            else None
        )  # fmt: skip
        self._schedule = system.learning_rate
        startup.mark("model")
        self._warm_up(seed)
        startup.mark("warm-up")
        torch.manual_seed(derive(seed, "dropout", layout.stream(world.rank)))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Replace the weights by the average inside the context, if evaluations use one."""
        with nullcontext() if self._average is None else replaced(*self._average.read_out()):
            yield

    def communication(self) -> Communication:
        """Return how gradients are sent and applied, for the run's output and records."""
        sizes = [local(parameter).numel() for parameter in self.parameters]
        whole = [parameter.numel() for parameter in self.parameters]
        buckets = [sum(sizes[place] for place in places) for places in self.gradients.buckets] or [sum(whole)]
        return Communication(
            clip=self._system.clip.mode,
            compression="none",
            bucket_elements=tuple(buckets),
            bytes_per_step=4 * sum(buckets),
            model_arithmetic=self._model_arithmetic,
            optimizer_arithmetic="torch's multi-tensor operations on this rank's part of the model",
        )

    def step(self, number: int, parts: Sequence[LoadedPart]) -> StepReport:
        """Take step `number`, counted from 0, with the samples of this data-parallel rank."""
        loss = self._accumulate(parts) if self.pipeline is None else self.pipeline.run(parts)
        with named(ALL_REDUCE):
            self.gradients.reduce()
            norm, clip = self.gradients.norm(), self._system.clip
        factor, clipped = remaining_clipping(clip.mode, norm, clip.max_norm, None)
        rate: Scalar = self._schedule.rate(number)
        with named(OPTIMIZER):
            self.optimizer.step(rate, factor)
            if self._average is not None:
                self._average.update(number + 1)
        for parameter in self.parameters:
            parameter.grad = None
        # one of the ranks that compute the same reports
        return StepReport(loss if self.groups.place.tensor == 0 else torch.zeros_like(loss), norm, rate, clipped, None)

    def _accumulate(self, parts: Sequence[LoadedPart]) -> torch.Tensor:
        shares = self.groups.layout.token_shares
        self._stage.microbatches = [LoadedPart(part, even(batch, shares)) for part, batch in parts]
        total = torch.zeros((), device=self._world.device)
        for place in torch.arange(len(parts)).split(1):
            with named(FORWARD):
                (loss,) = self._stage(place, place)
            with named(BACKWARD):
                loss.backward()
            total += loss.detach()
        return total

    @torch.no_grad()
    def scores(self, batch: Batch) -> torch.Tensor | None:
        """Return masked-LM scores of a batch, [M, V], on the last stage's ranks; expects evaluation mode."""
        batch = even(batch, self.groups.layout.token_shares)
        if self.pipeline is not None:
            return self.pipeline.scores(batch)
        self._stage.microbatches = (LoadedPart(Part(np.empty(0, np.int64), 0.0, 0.0), batch),)
        place = torch.zeros(1, dtype=torch.int64)
        scores: torch.Tensor = self._stage(place, place)
        return scores

    def _warm_up(self, seed: int) -> None:
        """Run an untimed step on synthetic batches, then restore weights and optimizer."""
        system = self._system
        weights = [local(parameter.detach()).clone() for parameter in self.parameters]
        generator = torch.Generator().manual_seed(derive(seed, "warm-up"))
        longest, size = system.model.max_positions, system.local_batch // system.parts
        if self.pipeline is not None:
            longest = min(longest, self.pipeline.tokens)
            size = self.pipeline.tokens // longest
        batch = synthetic(size, longest, system.model.vocab_size, generator)
        part = Part(np.arange(size), 1 / len(batch.masked_at_M), 1 / size)
        batch = batch.to(self._world.device)
        self.step(0, [LoadedPart(part, batch)] * system.parts)
        if self._mode != "none":  # evaluation compiles separately
            self.model.eval()
            self.scores(batch)
            self.model.train()
        with torch.no_grad():
            for parameter, weight in zip(self.parameters, weights, strict=True):
                local(parameter.detach()).copy_(weight)
        self.optimizer.reset()
        if self._average is not None:
            self._average.reset()

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory on which later steps depend: this rank's part of weights and moments.

        All layouts use the same names, and sharded tensors are DTensors, so that a state moves between layouts.
        """
        names: dict[torch.Tensor, str] = {parameter: name for name, parameter in self._named.items()}
        parts = {
            "model": {name: parameter.detach() for name, parameter in self._named.items()},
            "optimizer": self.optimizer.moments(names),
            "average": {} if self._average is None else self._average.state(names),
        }
        return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps, once their `state` is restored."""
        self.optimizer.resume(steps)

    def whole(self) -> Bert | None:
        """Return the model on rank 0, in main memory, gathered tensor by tensor from the ranks that hold it."""
        with torch.device("meta"):
            model = Bert(self._system.model.shape())
        names = list(logical_weights(model))
        if self._world.leads:
            model = model.to_empty(device="cpu")
        held = [set(json.loads(text)) for text in self._world.from_all(json.dumps(list(self._named)))]
        gathered = logical_weights(model)
        for name in names:  # the same order on every rank, or ranks would wait for each other forever
            self._world.watchdog.goes_on()
            whole = whole_tensor(self._named[name].detach()) if name in self._named else None
            holder = next(rank for rank, its in enumerate(held) if name in its)
            if self._world.leads:
                if whole is None:
                    whole = torch.empty(gathered[name].shape, device=self._world.device)
                    distributed.recv(whole, holder)
                gathered[name].copy_(whole)
            elif self._world.rank == holder and whole is not None:
                distributed.send(whole.contiguous(), 0)
        return model if self._world.leads else None

    def close(self) -> None:
        """Do nothing: no hook outlives the process group."""
