"""Train a model that is split over ranks; `WholeTrainer` serves whole models.

All layouts take the same step up to rounding: losses and gradients are sums over the global batch, norms and trust
ratios use whole tensors (docs/parallelism.md).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bertbench.common.phase_clock import BACKWARD, FORWARD, in_phase
from bertbench.config import System
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Weights
from bertbench.gradients.clip import make_clip
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.arithmetic import choose_mode, describe_compute
from bertbench.model.bert import Bert
from bertbench.model.encoder import recompute
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.optim.average import AverageView, EvaluationView
from bertbench.optim.step_scale import FixedScale
from bertbench.parallel.fsdp import shard
from bertbench.parallel.gather import gathered_model
from bertbench.parallel.gradients import SplitReducer
from bertbench.parallel.microbatches import even
from bertbench.parallel.optimizer import shard_optimizer
from bertbench.parallel.pipeline import Pipeline
from bertbench.parallel.process_groups import ProcessGroups
from bertbench.parallel.stage import Stage, logical_name
from bertbench.parallel.tensor_parallel import norm_parameters, split_layers
from bertbench.training.gradient_path import GradientPath
from bertbench.training.trainer import Trainer, initial_model


class LayoutTrainer(Trainer):
    """This rank's part of the model, built and warmed up.

    `tokens` is the budget of a microbatch, if the layout has a pipeline.
    """

    def __init__(self, system: System, world: World, seed: int, tokens: int, startup: Startup | None = None) -> None:
        """Build and warm up; `startup` gets a mark at the end of each."""
        self._system = system
        self._world = world
        parallel, layout = system.parallel, system.layout
        self.groups = ProcessGroups(layout, world, parallel.fully_shard)
        # tensor-parallel layers have no compiled pieces (Stage.fuse); the configuration refuses to ask for them
        self._mode, pieces = choose_mode(world.device, "none" if layout.tensor > 1 else system.compute.compile)
        stages = self._build_stages(initial_model(system, seed))
        self._stages = nn.ModuleList(stages)
        self._model_arithmetic = describe_compute(world.device, system.precision.compute, system.model.shape(), pieces)
        # kept, because FSDP2 replaces the tensors while it computes
        self._parameters_by_name = {
            logical_name(name): parameter for stage in stages for name, parameter in stage.named_parameters()
        }
        self.parameters = list(self._parameters_by_name.values())
        words = next((stage.words for stage in stages if stage.words is not None), None)
        shares = layout.token_shares
        of_shares = [parameter for stage in stages for parameter in norm_parameters(stage)] if shares > 1 else []
        clip = make_clip(system.clip.mode, system.clip.max_norm, world.size, buckets=1)
        self.reducer = SplitReducer(
            self.parameters, words, self.groups, clip, parallel.fully_shard, system.parts, of_shares
        )
        weights, decay = Weights(), system.optimizer.ema_decay
        self._path = GradientPath(
            FixedScale(system.learning_rate, system.max_steps),
            self.reducer,
            shard_optimizer(self.parameters, system.optimizer, self.groups.shards),
            weights,
            AverageView(weights, LogicalTensors(self.parameters, {}), decay) if decay else EvaluationView(weights),
            "collectives",
            "torch's multi-tensor operations on this rank's part of the model",
        )
        self._stage = stages[0]
        self.pipeline = (
            Pipeline(stages, self.groups, system, -(-tokens // shares) * shares) if layout.pipeline > 1 else None
        )
        self._warm_up(seed, startup)

    def _build_stages(self, whole: Bert) -> list[Stage]:
        system, layout, parallel = self._system, self.groups.layout, self._system.parallel
        stages = [
            Stage(whole, number, layout.stages, system.precision.compute)
            for number in range(self.groups.place.pipeline, layout.stages, layout.pipeline)
        ]
        for stage in stages:
            if not parallel.fully_shard:  # FSDP2 moves one layer at a time and keeps its shard
                stage.to(self._world.device)
            if parallel.recompute:
                recompute(stage.layers.values())
            if layout.tensor > 1:
                split_layers(stage, self.groups.mesh("tensor", self.groups.tensor), parallel.sequence)
            if parallel.fully_shard:
                shard(stage, self.groups.mesh("data", self.groups.data))
            if self._mode != "none":
                stage.fuse()
        return stages

    @property
    def model(self) -> nn.Module:
        """Return this rank's stages."""
        return self._stages

    def _accumulate(self, parts: Sequence[LoadedPart]) -> Tensor:
        loss = self._run_stage(parts) if self.pipeline is None else self.pipeline.run(parts)
        # one of the ranks that compute the same reports
        return loss if self.groups.place.tensor == 0 else torch.zeros_like(loss)

    def _run_stage(self, parts: Sequence[LoadedPart]) -> Tensor:
        shares = self.groups.layout.token_shares
        self._stage.microbatches = [LoadedPart(part, even(batch, shares)) for part, batch in parts]
        total = torch.zeros((), device=self._world.device)
        for place in torch.arange(len(parts)).split(1):
            with in_phase(FORWARD):
                (loss,) = self._stage(place, place)
            with in_phase(BACKWARD):
                loss.backward()
            total += loss.detach()
        return total

    @torch.no_grad()
    def scores(self, batch: Batch) -> Tensor | None:
        """Return masked-LM scores of a batch, [M, V], on the last stage's ranks; expects evaluation mode."""
        batch = even(batch, self.groups.layout.token_shares)
        if self.pipeline is not None:
            return self.pipeline.scores(batch)
        self._stage.microbatches = (LoadedPart(Part(np.empty(0, np.int64), 0.0, 0.0), batch),)
        place = torch.zeros(1, dtype=torch.int64)
        scores: Tensor = self._stage(place, place)
        return scores

    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        system = self._system
        longest, size = system.model.max_positions, system.samples_per_pass
        if self.pipeline is not None:
            longest = min(longest, self.pipeline.tokens)
            size = self.pipeline.tokens // longest
        batch = synthetic(size, longest, system.model.vocab_size, generator)
        part = Part(np.arange(size), 1 / len(batch.masked_at_M), 1 / size)
        batch = batch.to(self._world.device)
        self.step(0, [LoadedPart(part, batch)] * system.parts)
        if self._mode != "none":  # evaluation compiles separately
            self._stages.eval()
            self.scores(batch)
            self._stages.train()

    def _named(self) -> dict[str, nn.Parameter]:
        """Return the parameters by name: all layouts use the same, so that a state moves between layouts."""
        return self._parameters_by_name

    def whole(self) -> Bert | None:
        """See `Trainer.whole`."""
        return gathered_model(self._system.model.shape(), self._parameters_by_name, self._world)
