"""Names for what a step does, seen by `train --profile`. torch only: model/ and optim/ use it."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.profiler import record_function

ATTENTION, FORWARD, BACKWARD, ALL_REDUCE = "attention", "forward", "backward", "all-reduce"
OPTIMIZER, DATA_WAIT = "optimizer", "data wait"


def named(name: str) -> AbstractContextManager[object]:
    """Return a range of the profiler; without a profiler it costs a twentieth of record_function."""
    return record_function(name) if torch.autograd.profiler._is_profiler_enabled else nullcontext()
