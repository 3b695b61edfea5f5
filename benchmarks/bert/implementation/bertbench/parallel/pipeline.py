"""Run microbatches through the stages of a pipeline: by torch's schedules, or in evaluation by a plain pass.

Stages send each other hidden states and their gradients. Each stage holds the microbatches itself and receives only
their numbers.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, distributed

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import STAGE_WAIT
from bertbench.common.stage_times import StageRecorder
from bertbench.config import System
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.parallel.microbatches import filled_to_tokens
from bertbench.parallel.process_groups import ProcessGroups
from bertbench.parallel.stage import Stage, wire_format

RECORDED_STEPS = range(3, 6)
"""The steps of a run, counted from 1, whose passes are recorded one by one; step 0 is the warm-up."""


class Pipeline:
    """This rank's stages of a pipeline. All ranks of the pipeline call the same methods with the same samples."""

    def __init__(
        self,
        stages: Sequence[Stage],
        groups: ProcessGroups,
        system: System,
        tokens: int,
    ) -> None:
        # imported here because it loads torch's compiler (0.75 s), which runs without a pipeline don't need
        from torch.distributed.pipelining import (  # noqa: PLC0415
            Schedule1F1B,
            ScheduleGPipe,
            ScheduleInterleaved1F1B,
        )

        from bertbench.parallel.timed_stage import TimedStage  # noqa: PLC0415 - for the same reason

        self.stages = stages
        self.tokens = tokens
        """The number of tokens in every microbatch."""
        rows = tokens // groups.layout.token_shares
        self._groups = groups
        self._device = groups.world.device
        microbatches = system.parallel.microbatches
        self._places = torch.arange(microbatches)
        self._hidden = torch.empty(
            rows,
            system.model.hidden_size,
            dtype=wire_format(system.precision.compute),
            device="meta",
            requires_grad=True,
        )
        loss_1 = torch.empty(1, device="meta", requires_grad=True)
        self.staged = [
            TimedStage(
                stage,
                number,
                groups.layout.stages,
                self._device,
                input_args=(self._places[:1] if stage.is_first else self._hidden,),
                output_args=(loss_1 if stage.is_last else self._hidden,),
                group=groups.pipeline,
            )
            for number, stage in zip(self._numbers(), stages, strict=True)
        ]
        self.recorder = StageRecorder(self._device)
        """Records the passes of RECORDED_STEPS."""
        for timed in self.staged:
            timed.recorder = self.recorder
        self._steps = 0
        self._schedule: ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B
        match system.parallel.schedule:
            case "interleaved":
                self._schedule = ScheduleInterleaved1F1B([*self.staged], microbatches, _sum, scale_grads=False)
            case "gpipe":
                self._schedule = ScheduleGPipe(self.staged[0], microbatches, _sum, scale_grads=False)
            case "1f1b":
                self._schedule = Schedule1F1B(self.staged[0], microbatches, _sum, scale_grads=False)

    def run(self, parts: Sequence[LoadedPart]) -> Tensor:
        """Run a step's forward and backward passes; return the loss on the last stage, 0 elsewhere."""
        parts = [LoadedPart(part, filled_to_tokens(batch, self.tokens)) for part, batch in parts]
        for stage in self.stages:
            stage.microbatches = parts
        losses: list[Tensor] = []
        inputs = [self._places] if self.stages[0].is_first else []
        self.recorder.step = self._steps
        self.recorder.on = self._steps in RECORDED_STEPS
        with in_phase(STAGE_WAIT):
            self._schedule.step(*inputs, target=self._places, losses=losses, return_outputs=False, place=self._places)
        self.recorder.on = False
        self._steps += 1
        return torch.stack(losses).sum().detach() if losses else torch.zeros((), device=self._device)

    @torch.no_grad()
    def outputs(self, batch: Batch) -> Tensor | None:
        """Return the outputs for a batch on the last stage, None elsewhere; the model must be in evaluation mode.

        If tensor-parallel ranks share tokens, the batch's tokens must be a multiple of their number.
        """
        layout = self._groups.layout
        hidden = self._places
        for number, stage in zip(self._numbers(), self.stages, strict=True):
            stage.microbatches = (unweighted(batch),)
            if not stage.is_first:
                rows = len(batch.tokens_T) // layout.token_shares
                hidden = self._hidden.new_empty(rows, self._hidden.shape[1], device=self._device)
                distributed.recv(hidden, group=self._groups.pipeline, group_src=(number - 1) % layout.pipeline)
            hidden = stage(hidden, self._places[:1])
            if stage.is_last:
                return hidden
            distributed.send(hidden, group=self._groups.pipeline, group_dst=(number + 1) % layout.pipeline)
        return None

    def _numbers(self) -> range:
        """Return the numbers of this rank's stages."""
        return range(self._groups.place.pipeline, self._groups.layout.stages, self._groups.layout.pipeline)


def unweighted(batch: Batch) -> LoadedPart:
    """Return a batch as a part whose losses have no weight, because an evaluation reads only the outputs."""
    return LoadedPart(Part(np.empty(0, np.int64), 0.0, 0.0), batch)


def _sum(losses_1: Tensor, _: Tensor) -> Tensor:
    return losses_1.sum()
