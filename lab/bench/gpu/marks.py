"""Mark times in a device's work, and read the time between two marks when the work is done.

On a GPU, a mark is an event in the current stream, so that the host doesn't have to wait. On a CPU, it is the current
time.
"""

import time

import torch

Mark = float | torch.cuda.Event


def mark(device: torch.device) -> Mark:
    """Mark the end of the work that has been launched so far."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def milliseconds_between(begun: Mark, ended: Mark) -> float:
    """Return the time between two marks of a device that has finished its work."""
    if isinstance(begun, torch.cuda.Event):
        assert isinstance(ended, torch.cuda.Event)
        return float(begun.elapsed_time(ended))
    assert not isinstance(ended, torch.cuda.Event)
    return 1e3 * (ended - begun)
