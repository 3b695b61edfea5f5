"""Mark moments of a device's work, and read the time between two of them once the work is done.

On a GPU a mark is an event of the current stream, so that launching it takes no time of the host; on a CPU it is now.
"""

import time

import torch

Mark = float | torch.cuda.Event


def mark(device: torch.device) -> Mark:
    """Mark the end of the work that was launched so far."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def milliseconds_between(begun: Mark, ended: Mark) -> float:
    """Return the time between two marks of one device, which has finished its work."""
    if isinstance(begun, torch.cuda.Event):
        assert isinstance(ended, torch.cuda.Event)
        return float(begun.elapsed_time(ended))
    assert not isinstance(ended, torch.cuda.Event)
    return 1e3 * (ended - begun)
