"""Split a rank's samples of a step into accumulation parts, and weigh their losses.

The index is enough: no samples are read, and ranks don't communicate.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertbench.balance.plan import Planner, StepPlan
from bertbench.balance.speeds import Speeds
from bertbench.config import System
from bertbench.data.store.columns import Index, Integers
from bertbench.data.store.dataset import Dataset

Normalize = Literal["global", "rank"]


@dataclass(frozen=True)
class Part:
    """The samples of one forward and backward pass on one rank, and the weights of their losses.

    The weighted sums of all parts of all ranks add up to the loss of the global batch.
    """

    ids: Integers
    masked_lm_weight: float
    """Factor on the sum of the part's masked-token losses."""
    next_sentence_weight: float
    """Factor on the sum of the part's sentence-pair losses."""


@dataclass(frozen=True)
class Sampler:
    """Splits each rank's share of a step into accumulation parts."""

    dataset: Dataset
    planner: Planner
    parts: int
    normalize: Normalize

    def share(self, plan: StepPlan, rank: int) -> list[Part]:
        """Return the parts of rank `rank`: `parts` of them, or fewer if it has fewer samples."""
        pieces = self.pieces(plan.dealt.of(rank))
        if self.normalize == "global":
            masked_total = int(self.dataset.masked(plan.dealt.ids_S).sum())
            return [Part(piece, 1 / masked_total, 1 / len(plan.dealt.ids_S)) for piece in pieces]
        parts = self.planner.ranks * len(pieces)
        return [
            Part(piece, 1 / (parts * int(self.dataset.masked(piece).sum())), 1 / (parts * len(piece)))
            for piece in pieces
        ]

    def pieces(self, ids: Integers) -> list[Integers]:
        """Return the ids of each part."""
        return np.array_split(ids, min(self.parts, len(ids)))


def make_speeds(system: System) -> Speeds | None:
    """Return the speeds in a system file, equal ones until they are measured; None if ranks count as equal."""
    given = system.launch.rank_speeds
    if given is None:
        return None
    return Speeds((1.0,) * system.world_size if given == "auto" else given)


def make_planner(system: System, entries_N: Index, seed: int, speeds: Speeds | None = None) -> Planner:
    """Return the planner that deals samples to data-parallel ranks; `speeds` defaults to the system's list."""
    speeds = speeds or make_speeds(system)
    # configuration refuses methods that use nodes if ranks share the model
    nodes = system.hardware.number_of_nodes if system.layout.data == system.world_size else 1
    return Planner(
        entries_N, system.balance, system.global_batch_size, seed, nodes, system.layout.data // nodes, speeds
    )
