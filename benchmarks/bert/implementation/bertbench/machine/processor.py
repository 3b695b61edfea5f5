"""Name this machine's processor."""

import platform
from pathlib import Path


def processor() -> str:
    """Return the name of the processor, as far as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
