"""Run torch's pipeline schedules on stages that sleep for given times. They need no core, so ranks may exceed cores."""

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from bertbench.common.stage_times import StageRecorder, StageTime
from bertbench.config.layout import PipelineSchedule
from bertbench.distributed.world import World
from bertbench.parallel.timed_stage import TimedStage

_NUMBERS = 8  # numbers in a message: so few that sending takes no time


class _Sleep(torch.autograd.Function):
    """Sleeps in both passes, and returns its tensors unchanged."""

    @staticmethod
    def forward(context: Any, hidden: Tensor, forward_s: float, backward_s: float) -> Tensor:
        context.backward_s = backward_s
        time.sleep(forward_s)
        return hidden.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(context.backward_s)
        return gradient.clone(), None, None


class SleepingStage(nn.Module):
    """A stage whose passes take the given seconds."""

    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_NUMBERS))
        self._seconds = (forward_s, backward_s)

    def forward(self, hidden: Tensor) -> Tensor:
        """Sleep."""
        slept: Tensor = _Sleep.apply(hidden * self.weight, *self._seconds)
        return slept


class SleepingPipeline:
    """One pipeline of all ranks; the stages of a rank together take `forward_s` and `backward_s` for a microbatch."""

    def __init__(
        self,
        world: World,
        schedule: PipelineSchedule,
        microbatches: int,
        virtual_stages: int,
        forward_s: float,
        backward_s: float,
    ) -> None:
        self._microbatches = microbatches
        self._is_first = world.rank == 0
        self.recorder = StageRecorder(world.device)
        stages = []
        for number in range(world.rank, world.size * virtual_stages, world.size):
            module = SleepingStage(forward_s / virtual_stages, backward_s / virtual_stages)
            example = torch.empty(1, _NUMBERS, device="meta", requires_grad=True)
            stage = TimedStage(
                module,
                number,
                world.size * virtual_stages,
                world.device,
                input_args=(example,),
                output_args=(example,),
            )
            stage.recorder = self.recorder
            stages.append(stage)
        self._schedule: ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B
        match schedule:
            case "interleaved":
                self._schedule = ScheduleInterleaved1F1B([*stages], microbatches, _loss, scale_grads=False)
            case "gpipe":
                self._schedule = ScheduleGPipe(stages[0], microbatches, _loss, scale_grads=False)
            case "1f1b":
                self._schedule = Schedule1F1B(stages[0], microbatches, _loss, scale_grads=False)

    def step_times(self, world: World) -> list[list[StageTime]]:
        """Run one step; return what each rank recorded. Collective."""
        self.recorder.step += 1
        self.recorder.on = True
        batch = torch.ones(self._microbatches, _NUMBERS, requires_grad=True)
        inputs = [batch] if self._is_first else []
        self._schedule.step(*inputs, target=torch.zeros(self._microbatches), losses=[])
        return world.from_all([span for span in self.recorder.times() if span.step == self.recorder.step])


def _loss(output: Tensor, _: Tensor) -> Tensor:
    return output.sum()
