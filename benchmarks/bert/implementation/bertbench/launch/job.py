"""A job that `bertbench launch` starts by another launcher; launchers return commands and run none themselves.

All of them call run_and_time.sh, whose ranks meet as distributed/rendezvous.py describes.
"""

from typing import NamedTuple

from bertbench.config import System


class Job(NamedTuple):
    """Runs of a system, as the user asked for them."""

    system: System
    name_or_path: str
    options: list[str]
    """For `bertbench train`: overrides and seed."""
    runs: int
