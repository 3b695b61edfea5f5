"""Plan a step: which samples each rank reads, and which it trains on.

The plan is a pure function of (lengths, seed, step, world): every rank computes the same plan and takes its own share.
So planning runs ahead of the step, a run resumes at any step from two integers, and one process can simulate a
thousand ranks. Shapes: S samples in the step, R ranks.
"""

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from bertbench.balance.cost import CostModel
from bertbench.balance.deal import Deal, by_cost, by_length, by_speed
from bertbench.balance.order import RandomOrder, WindowedOrder, plan_nodes, plan_strata
from bertbench.balance.speeds import Speeds
from bertbench.common.errors import ConfigError
from bertbench.data.store.columns import Floats, Index, Integers, lengths_of, offsets

if TYPE_CHECKING:
    from bertbench.balance import packing

Method = Literal[
    "none", "stratified", "presort", "stratified_presort", "global_exchange", "packed", "planned", "planned_local"
]
METHODS: tuple[Method, ...] = get_args(Method)
EXCHANGING = ("presort", "stratified_presort", "global_exchange")
"""Methods whose ranks send each other the samples that they have drawn."""
VARYING = ("packed", "planned", "planned_local")
"""Methods that may give ranks different numbers of samples."""


class Balance(NamedTuple):
    """How batches are drawn and dealt."""

    method: Method
    cost: CostModel
    deal: Deal = "snake"
    equal_counts: bool = False
    strata_edges: tuple[int, ...] = (128, 256, 384, 512)
    row_length: int = 512


class Shares(NamedTuple):
    """The samples of a step, rank by rank."""

    ids_S: Integers
    bounds_R1: Integers

    def of(self, rank: int) -> Integers:
        """Return the ids of one rank's samples."""
        return self.ids_S[self.bounds_R1[rank] : self.bounds_R1[rank + 1]]

    def sums(self, values_S: NDArray[np.number]) -> Floats:
        """Sum a value of each sample by rank: [R]."""
        return np.diff(np.concatenate(([0.0], np.cumsum(values_S)))[self.bounds_R1])


class StepPlan(NamedTuple):
    """The samples that each rank reads and those that it trains on; they differ only if ranks exchange samples."""

    drawn: Shares
    dealt: Shares


class Planner:
    """Plans any step of a run for all ranks.

    `speeds` makes `planned` deal each rank as much work as it is fast; without it all ranks are equal.
    """

    def __init__(
        self, entries_N: Index, balance: Balance, global_batch_size: int, seed: int, nodes: int, ranks_per_node: int,
        speeds: Speeds | None = None,
    ) -> None:  # fmt: skip
        self._entries_N = entries_N
        self.speeds = speeds
        self.balance = balance
        self._nodes = nodes
        self.ranks = nodes * ranks_per_node
        self._order: RandomOrder | WindowedOrder | packing.PackedOrder
        match balance.method:
            case "stratified" | "stratified_presort":
                plan = partial(plan_strata, balance.strata_edges)
                self._order = WindowedOrder(entries_N, global_batch_size, seed, plan)
            case "planned_local":
                self._order = WindowedOrder(entries_N, global_batch_size, seed, partial(plan_nodes, nodes))
            case "packed":
                from bertbench.balance.packing import PackedOrder  # noqa: PLC0415 - a run loads what it takes

                self._order = PackedOrder(entries_N, global_batch_size, seed, self.ranks, balance.row_length)
            case _:
                self._order = RandomOrder(len(entries_N), global_batch_size, seed)

    @property
    def groups(self) -> int:
        """Return the number of groups that deal samples among their ranks: one, one a node, or one a rank."""
        match self.balance.method:
            case "planned" | "global_exchange":
                return 1
            case "presort" | "stratified_presort" | "planned_local":
                return self._nodes
            case _:
                return self.ranks

    def plan(self, step: int) -> StepPlan:
        """Return the shares of all ranks in a step counted from 0."""
        drawn = self._drawn(self._order.step(step))
        if self.groups == self.ranks:
            return StepPlan(drawn, drawn)
        dealt = self._dealt(drawn.ids_S, step)
        return StepPlan(drawn if self.balance.method in EXCHANGING else dealt, dealt)

    def check_world(self, nodes: int, ranks: int) -> None:
        """Raise ConfigError if a run begun on `nodes` and `ranks` would see its samples in another order.

        With most methods the samples of a step depend on the global batch and the seed alone. `planned_local` deals the
        data to nodes, and `packed` counts rows by rank.
        """
        depends = {"planned_local": ("nodes", nodes, self._nodes), "packed": ("ranks", ranks, self.ranks)}
        what, begun, now = depends.get(self.balance.method, ("", 0, 0))
        if begun != now:
            raise ConfigError(
                f"the run was begun on {begun} {what}, found {now}; data.balance {self.balance.method} orders samples "
                f"by {what}: resume with {begun}, or restart with data.balance planned, which resumes with any number"
            )

    def lengths(self, shares: Shares) -> Integers:
        """Return the tokens of the samples, in their order: [S]."""
        return lengths_of(self._entries_N[shares.ids_S])

    def loads(self, plan: StepPlan) -> Floats:
        """Return the cost of each rank's samples: [R]."""
        return plan.dealt.sums(self.balance.cost.of_length[self.lengths(plan.dealt)])

    def _drawn(self, ids: Integers) -> Shares:
        if ids.ndim == 1:
            return Shares(ids, np.arange(self.ranks + 1) * (len(ids) // self.ranks))
        there_RC = ids >= 0  # packed rows
        return Shares(ids[there_RC], offsets(there_RC.sum(axis=1)))

    def efficiency(self, loads_R: Floats, step: int) -> float:
        """Return the share of a step in which the ranks work: the time it would take at best over the slowest's."""
        if self.speeds is None:
            return efficiency(loads_R)
        return float(loads_R.sum() / (loads_R / self.speeds.at(step)).max())

    def _dealt(self, ids_S: Integers, step: int) -> Shares:
        balance, ranks = self.balance, self.ranks // self.groups
        lengths_GS = lengths_of(self._entries_N[ids_S]).reshape(self.groups, -1)
        if balance.method in EXCHANGING:
            rank_GS = by_length(lengths_GS, ranks, balance.deal)
        elif self.speeds is not None:
            rank_GS = by_speed(lengths_GS[0], self.speeds.at(step), balance.cost.of_length)[None]
        else:
            rank_GS = by_cost(lengths_GS, ranks, balance.cost.of_length, balance.equal_counts)
        rank_S = (rank_GS + ranks * np.arange(self.groups)[:, None]).ravel()
        by_rank = np.argsort(rank_S.astype(np.uint16), kind="stable")
        return Shares(ids_S[by_rank], offsets(np.bincount(rank_S, minlength=self.ranks)))


def efficiency(loads_R: Floats) -> float:
    """Return mean load over largest load: the share of the step in which the average rank works."""
    return float(loads_R.mean() / loads_R.max())
