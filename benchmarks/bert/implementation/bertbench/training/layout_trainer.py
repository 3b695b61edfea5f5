"""Train a model that is split over ranks; for whole models there is `WholeTrainer`.

All layouts take the same step up to rounding: losses and gradients are sums over the global batch, norms and trust
ratios use whole tensors (docs/parallelism.md).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import BACKWARD, FORWARD
from bertbench.common.stage_times import StageTime
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.model.arithmetic import choose_mode, describe_compute
from bertbench.model.bert import Bert
from bertbench.model.encoder import recompute
from bertbench.parallel.microbatches import filled_to_multiple
from bertbench.parallel.pipeline import Pipeline, unweighted
from bertbench.parallel.process_groups import ProcessGroups
from bertbench.parallel.split_vocabulary import split_vocabulary
from bertbench.parallel.stage import Stage, fully_shard_stage, gather_stages, logical_name, modules_of_stages
from bertbench.parallel.tensor_parallel import split_layers
from bertbench.training.gradient_path import build_split_path
from bertbench.training.task import PRE_TRAINING, Task
from bertbench.training.trainer import Trainer, full_lengths


class LayoutTrainer(Trainer):
    """This rank's part of the model, built and warmed up.

    If the layout has a pipeline, `tokens` is the number of tokens in each microbatch.
    """

    def __init__(
        self,
        system: System,
        world: World,
        seed: int,
        tokens: int,
        startup: Startup | None = None,
        task: Task = PRE_TRAINING,
        warm_up_lengths_S: Integers | None = None,
    ) -> None:
        """Build and warm up; mark the end of each in `startup`.

        Without a pipeline, the warm-up uses samples of the lengths `warm_up_lengths_S`, the same on all ranks; by
        default all have full length.
        """
        self._system = system
        self._world = world
        self._seed = seed
        self._task = task
        self._warm_up_lengths_S = full_lengths(system) if warm_up_lengths_S is None else warm_up_lengths_S
        layout = system.layout
        self.groups = ProcessGroups(layout, world, system.parallel.fully_shard)
        # tensor-parallel layers can't be compiled (Stage.fuse); the configuration refuses such settings
        compile_mode = "none" if layout.tensor > 1 else system.compute.compile
        self._compile_mode, pieces = choose_mode(world.device, compile_mode)
        stages = self._build_stages()
        self._stages = nn.ModuleList(stages)
        self._model_arithmetic = describe_compute(world.device, system.precision.compute, system.model.shape(), pieces)
        # kept here, because FSDP2 replaces the tensors during computation
        self._parameters_by_name = {
            logical_name(name): parameter for stage in stages for name, parameter in stage.named_parameters()
        }
        self.parameters = list(self._parameters_by_name.values())
        self._path = build_split_path(system, self.groups, stages, self.parameters)
        self._stage = stages[0]
        self.pipeline: Pipeline | None = None
        if layout.pipeline > 1:
            tokens_of_a_share = -(-tokens // layout.token_shares)
            self.pipeline = Pipeline(stages, self.groups, system, tokens_of_a_share * layout.token_shares)
        self._warm_up(seed, startup)

    def _build_stages(self) -> list[Stage]:
        """Return this rank's stages on its device, split and compiled as the layout requires."""
        system = self._system
        parallel = system.parallel
        layout = system.layout
        numbers = range(self.groups.place.pipeline, layout.stages, layout.pipeline)
        held = modules_of_stages(numbers, layout.stages, system.model.layers, self._task.heads)
        model = self._task.initial_model(system, self._seed, held)
        stages = [self._task.stage(model, number, layout.stages, system.precision.compute) for number in numbers]
        for stage in stages:
            if parallel.recompute:
                recompute(stage.layers.values())
            if layout.tensor > 1:
                self._split(stage)
            elif parallel.fully_shard:  # FSDP2 moves one layer at a time and keeps its shard
                fully_shard_stage(stage, self.groups.mesh("data", self.groups.data))
            else:
                stage.to(self._world.device)
            if self._compile_mode != "none":
                stage.fuse()
        return stages

    def _split(self, stage: Stage) -> None:
        """Keep only this rank's share of a stage, on its device."""
        mesh = self.groups.mesh("tensor", self.groups.tensor)
        for module in stage.ends():
            module.to(self._world.device)
        split_vocabulary(stage, mesh)
        split_layers(stage, mesh, self._system.parallel.sequence)

    @property
    def model(self) -> nn.Module:
        """Return this rank's stages."""
        return self._stages

    def stage_times(self) -> list[StageTime]:
        """Return what this rank's stages recorded; see `Trainer.stage_times`."""
        return [] if self.pipeline is None else self.pipeline.recorder.times()

    def _accumulate(self, parts: Sequence[LoadedPart]) -> Tensor:
        loss = self._run_stage(parts) if self.pipeline is None else self.pipeline.run(parts)
        # of the ranks that compute the same loss, one reports it
        return loss if self.groups.place.tensor == 0 else torch.zeros_like(loss)

    def _run_stage(self, parts: Sequence[LoadedPart]) -> Tensor:
        shares = self.groups.layout.token_shares
        self._stage.microbatches = [LoadedPart(part, filled_to_multiple(batch, shares)) for part, batch in parts]
        total_loss = torch.zeros((), device=self._world.device)
        for place_1 in torch.arange(len(parts)).split(1):
            with in_phase(FORWARD):
                (loss,) = self._stage(place_1, place_1)
            with in_phase(BACKWARD):
                loss.backward()
            total_loss += loss.detach()
        return total_loss

    @torch.no_grad()
    def outputs(self, batch: Batch) -> Tensor | None:
        """Return the outputs of the last stage for a batch, None on other ranks; the model must be in evaluation mode.

        In pre-training, the outputs are the predicted ids of the masked tokens, [M].
        """
        batch = filled_to_multiple(batch, self.groups.layout.token_shares)
        if self.pipeline is not None:
            return self.pipeline.outputs(batch)
        self._stage.microbatches = (unweighted(batch),)
        place_1 = torch.zeros(1, dtype=torch.int64)
        outputs: Tensor = self._stage(place_1, place_1)
        return outputs

    def _take_warm_up_steps(self, generator: torch.Generator) -> None:
        system = self._system
        lengths_S = self._warm_up_lengths_S
        if self.pipeline is not None:
            length = min(system.model.max_positions, self.pipeline.tokens)
            lengths_S = np.full(self.pipeline.tokens // length, length)
        part, batch = self._task.synthetic_part(system, lengths_S, generator)
        batch = batch.to(self._world.device)
        self.step(0, [LoadedPart(part, batch)] * system.parts)
        if self._compile_mode != "none":  # evaluation compiles separately
            self._stages.eval()
            self.outputs(batch)
            self._stages.train()

    def _named_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by name; names are the same in all layouts, so that a state can move between them."""
        return self._parameters_by_name

    def gather_model(self) -> Bert | None:
        """Gather the model's parts on rank 0; see `Trainer.gather_model`."""
        model = self._task.gathering_model(self._system, self._seed, self._world.leads)
        gather_stages(model, self._parameters_by_name, self._world)
        return model if self._world.leads else None
