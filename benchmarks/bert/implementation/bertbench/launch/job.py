"""What `bertbench launch` runs elsewhere than in this process: each launcher writes commands, and runs none itself.

All of them end in run_and_time.sh, whose ranks find each other as distributed/rendezvous.py says.
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
