"""The section of a system file on how its ranks start and how long they wait for each other."""

from typing import Annotated, Literal

from pydantic import Field

from bertbench.common.section import Count, Section


class Launch(Section):
    """How processes start on the machine."""

    ranks_per_node: Count
    """Processes on each node: one a GPU, or a few on a CPU."""
    device: Literal["cpu", "cuda"]
    """Where tensors live; the communication backend follows: gloo on cpu, nccl on cuda."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port of the rendezvous on the first node; 0 takes any free one (single node only)."""
    clear_caches: bool = False
    """Drop the operating system's page cache before a run (needs root), as MLPerf asks of submissions."""
    timeout_s: Count = 120
    """Seconds within which all ranks must meet."""
    stall_timeout_s: Count = 60
    """Seconds without a sign of life after which a rank counts as stopped, or lost with its node, and the run ends."""
    progress_timeout_s: Count = 600
    """Seconds that a living rank may spend on a step, an evaluation batch or a snapshot before the run ends."""
    bind_cores: bool = False
    """Keep each rank to its own cores: those near its GPU, or its part of the CPU. Linux only."""
    walltime_minutes: Count = 60
    """Minutes that Slurm or Kubernetes grants a run, its initialisation included."""
    max_restarts: Annotated[int, Field(ge=0)] = 0
    """How often ranks are started again, from the last snapshot, after one died (docs/reliability.md)."""

    rank_speeds: Literal["auto"] | tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Relative speed of each rank, by which `data.balance` planned gives it work; `auto` measures them before a run
    (docs/balance.md). Equal where it isn't given."""
    rebalance_every_steps: Count | None = None
    """Steps after which the speeds are measured again, from those steps."""
