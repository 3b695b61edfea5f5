"""Let the allocator of a CPU rank keep what tensors free, for the next step to use again.

glibc gives blocks of 32 MB and more back to the system when they are freed, and the next step gets them page by page,
each cleared first: at medium size that was 6 % of a step on an EPYC. The process keeps its largest size.
"""

import ctypes

# mallopt(3): no block is mapped by itself, and 2 GB may lie free at the end of the heap.
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep freed blocks, if the C library has the option (glibc); else change nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST)
