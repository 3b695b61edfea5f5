"""Warn of a version of torch that bertbench's tests haven't run on.

pip doesn't install such a version, because pyproject.toml bounds it. A container, or an installation without
dependencies, may have one.
"""

import re

import torch

OLDEST, NEWEST = (2, 11), (2, 14)
"""The versions of torch that the tests have run on; docs/install.md says how."""


def untested(version: str = torch.__version__) -> str | None:
    """Return a warning if this torch is older or newer than the versions that the tests have run on; else None."""
    major, minor, *_ = map(int, re.findall(r"\d+", version))  # NVIDIA's builds are called 2.11.0a0+hash
    if OLDEST <= (major, minor) <= NEWEST:
        return None
    oldest, newest = (".".join(map(str, bound)) for bound in (OLDEST, NEWEST))
    return (
        f"torch {version} is untested with bertbench: its tests have run on torch {oldest} to {newest}; "
        "docs/install.md says how to test another"
    )
