"""Names of what the time of a step on one rank goes to. phase_clock.py measures them; readers load no torch for these.

A collective levels the ranks: after it, all have spent as long. So what a rank waits in collectives is a phase of its
own, and the others hold only what it did itself.
"""

DATA = "data"
FORWARD = "forward"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
WAIT = "wait"
STAGE_WAIT = "stage_wait"
REPLAY = "replay"
OWN = (DATA, FORWARD, BACKWARD, OPTIMIZER)
"""Phases in which a rank doesn't wait for other ranks."""
PHASES = (*OWN, WAIT, STAGE_WAIT, REPLAY)
"""STAGE_WAIT is what a rank of a pipeline waits for other stages, from its first pass of a step to its last. A replayed
step is one phase: a CUDA graph has no marks inside."""
RANKS_MS = "ranks_ms"
"""Field of metrics.jsonl: mean milliseconds a step by phase and rank, since the previous line with the field."""
