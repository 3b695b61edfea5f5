"""Name this machine's processor, its cores and its vector instructions."""

import platform
import re
from pathlib import Path

_INSTRUCTIONS = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 with bf16", "avx512f": "AVX-512", "avx2": "AVX2"}


def processor() -> str:
    """Return the processor's name, as the operating system reports it."""
    return _first_core().get("model name") or platform.processor() or platform.machine()


def instructions() -> str | None:
    """Return the widest vector instructions of an x86 processor. Processors of one name can differ in them."""
    flags = _first_core().get("flags", "").split()
    return next((name for flag, name in _INSTRUCTIONS.items() if flag in flags), None)


def _first_core() -> dict[str, str]:
    return next(iter(cores()), {})


def cores() -> list[dict[str, str]]:
    """Return the fields of each logical core from /proc/cpuinfo; none on a system other than Linux."""
    try:
        blocks = Path("/proc/cpuinfo").read_text().strip().split("\n\n")
    except OSError:
        return []
    return [dict(re.findall(r"^([^\t:]+)\t*: *(.*?) *$", block, re.MULTILINE)) for block in blocks]
