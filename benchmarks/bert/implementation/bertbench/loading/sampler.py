"""Plan one rank's share of a step: its samples, split into accumulation parts, and the weights of their losses.

This needs only the index: no samples are read, and ranks don't communicate.
Shapes: R ranks.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertbench.balance.assignment import Assign
from bertbench.balance.plan import Planner, StepPlan, efficiency
from bertbench.config import System
from bertbench.data.store.columns import Index, Integers
from bertbench.data.store.dataset import Dataset
from bertbench.loading.filler import BatchSize
from bertbench.model.shape import BatchCounts

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
    size: BatchSize | None = None
    """The bin up to which the part's batch is filled; None for a run without recorded steps."""


@dataclass(frozen=True)
class RankStep:
    """One rank's share of a step; every rank can plan it."""

    plan: StepPlan
    """The samples of all ranks."""
    parts: list[Part]
    """This rank's samples."""
    load_efficiency: float
    """The mean load of a rank divided by the largest, by the cost model: see `balance.plan.efficiency`."""
    counts: BatchCounts
    """Tokens of all ranks' samples, for the model's operations."""


@dataclass(frozen=True)
class Sampler:
    """Splits each rank's share of a step into accumulation parts."""

    dataset: Dataset
    planner: Planner
    parts: int
    normalize: Normalize

    def step(self, step: int, rank: int) -> RankStep:
        """Return rank `rank`'s share of a step; steps count from 0."""
        plan = self.planner.plan(step)
        load_efficiency = efficiency(self.planner.loads(plan))
        return RankStep(plan, self.share(plan, rank), load_efficiency, self._counts(plan))

    def _counts(self, plan: StepPlan) -> BatchCounts:
        ids_S = plan.assigned.ids_S
        return BatchCounts.of_sequences(self.dataset.lengths(ids_S), int(self.dataset.masked(ids_S).sum()))

    def share(self, plan: StepPlan, rank: int) -> list[Part]:
        """Return the parts of rank `rank`: `parts` of them, or fewer if it has fewer samples."""
        pieces = self.pieces(plan.assigned.of(rank))
        if self.normalize == "global":
            masked_total = int(self.dataset.masked(plan.assigned.ids_S).sum())
            return [Part(piece, 1 / masked_total, 1 / len(plan.assigned.ids_S)) for piece in pieces]
        parts_of_all_ranks = self.planner.ranks * len(pieces)
        return [
            Part(
                ids=piece,
                masked_lm_weight=1 / (parts_of_all_ranks * int(self.dataset.masked(piece).sum())),
                next_sentence_weight=1 / (parts_of_all_ranks * len(piece)),
            )
            for piece in pieces
        ]

    def size_of(self, part: Part) -> BatchSize:
        """Return the size of a part's batch, without filler."""
        tokens = int(self.dataset.lengths(part.ids).sum())
        masked = int(self.dataset.masked(part.ids).sum())
        return BatchSize(tokens, masked, len(part.ids))

    def pieces(self, ids: Integers) -> list[Integers]:
        """Split a rank's ids into those of each part."""
        return np.array_split(ids, min(self.parts, len(ids)))


def make_planner(system: System, entries_N: Index, seed: int, assign: Assign | None = None) -> Planner:
    """Return the planner that assigns samples to data-parallel ranks; see `Planner` for `assign`."""
    # configuration refuses methods that use nodes if ranks share the model
    nodes = system.hardware.number_of_nodes if system.layout.data == system.world_size else 1
    ranks_per_node = system.layout.data // nodes
    return Planner(entries_N, system.balance, system.global_batch_size, seed, nodes, ranks_per_node, assign)
