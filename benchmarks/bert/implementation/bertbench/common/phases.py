"""Name the phases on which a rank spends the time of a step. phase_clock.py measures them. This file imports no torch.

After a collective, all ranks have spent the same time. So a rank's waiting time in collectives is a phase of its own,
and the other phases contain only what the rank did itself.
"""

DATA = "data"
FORWARD = "forward"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
WAIT = "wait"
STAGE_WAIT = "stage_wait"
REPLAY = "replay"
ATTENTION = "attention"
"""A part of the passes, which only a profile shows."""
OWN = (DATA, FORWARD, BACKWARD, OPTIMIZER)
"""Phases in which a rank doesn't wait for other ranks."""
PHASES = (*OWN, WAIT, STAGE_WAIT, REPLAY)
"""STAGE_WAIT is the time that a rank of a pipeline waits for other stages, from its first pass of a step to its last.
A replayed step is one phase, because a CUDA graph has no marks inside."""
