"""Time the passes of a pipeline stage as phases of the step.

The phase clock adds up the passes and waits of every step, at the cost of reading the clock twice in each pass. The
recorder also keeps the single passes and messages of a few steps.
"""

from typing import Any

from torch.distributed import P2POp
from torch.distributed.pipelining import PipelineStage

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import BACKWARD, FORWARD
from bertbench.common.stage_times import Kind, StageRecorder


class TimedStage(PipelineStage):
    """A stage of torch's pipeline whose passes are phases of the step, recorded one by one by `recorder`."""

    recorder: StageRecorder

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        """Run the forward pass of a microbatch."""
        with in_phase(FORWARD):
            if not self.recorder.on:
                return super().forward_one_chunk(fwd_chunk_id, *arguments, **options)
            began = self.recorder.mark()
            self.recorder.received("receive forward", self.stage_index, fwd_chunk_id, began)
            output = super().forward_one_chunk(fwd_chunk_id, *arguments, **options)
            self.recorder.add("forward", self.stage_index, fwd_chunk_id, began, self.recorder.mark())
            return output

    def backward_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **options: Any) -> None:
        """Run the backward pass of a microbatch."""
        with in_phase(BACKWARD):
            if not self.recorder.on:
                super().backward_one_chunk(bwd_chunk_id, *arguments, **options)
                return
            began = self.recorder.mark()
            self.recorder.received("receive backward", self.stage_index, bwd_chunk_id, began)
            super().backward_one_chunk(bwd_chunk_id, *arguments, **options)
            self.recorder.add("backward", self.stage_index, bwd_chunk_id, began, self.recorder.mark())

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that receive a microbatch's hidden states."""
        return self._asked("receive forward", fwd_chunk_id, super().get_fwd_recv_ops(fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that receive a microbatch's gradients."""
        return self._asked("receive backward", bwd_chunk_id, super().get_bwd_recv_ops(bwd_chunk_id))

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that send a microbatch's hidden states."""
        return self._sent("send forward", fwd_chunk_id, super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that send a microbatch's gradients."""
        return self._sent("send backward", bwd_chunk_id, super().get_bwd_send_ops(bwd_chunk_id))

    def _asked(self, kind: Kind, microbatch: int, messages: list[P2POp]) -> list[P2POp]:
        if self.recorder.on and messages:
            self.recorder.asks(kind, self.stage_index, microbatch)
        return messages

    def _sent(self, kind: Kind, microbatch: int, messages: list[P2POp]) -> list[P2POp]:
        if self.recorder.on and messages:
            now = self.recorder.mark()
            self.recorder.add(kind, self.stage_index, microbatch, now, now)
        return messages
