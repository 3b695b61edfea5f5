"""Plan a step: which samples each rank reads, which it trains on, and what an exchange between them sends.

The plan is a pure function of (lengths, seed, step, world): every rank computes the same plan and takes its own share.
So planning runs ahead of the step, a run resumes at any step from two integers, and one process can simulate a
thousand ranks. Shapes: S samples in the step, R ranks.
"""

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from bertbench.balance.assignment import Assign, RowOrder, assign_by_cost, assign_by_length
from bertbench.balance.cost import CostModel
from bertbench.balance.order import RandomOrder, WindowedOrder, plan_nodes, plan_strata
from bertbench.balance.strata import QuotaOrder, count_strata
from bertbench.common.errors import ConfigError
from bertbench.data.store.columns import Floats, Index, Integers, lengths_of, masked_of, offsets

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
STRATIFIED = ("stratified", "stratified_presort")
"""Methods that draw each rank's samples from strata of length."""


class Balance(NamedTuple):
    """How batches are drawn and assigned to ranks."""

    method: Method
    cost: CostModel
    row_order: RowOrder = "snake"
    """Runs assign sorted rows as a snake, which balances better; simulations compare a raster (docs/balance.md)."""
    equal_counts: bool = False
    strata_edges: tuple[int, ...] = (128, 256, 384, 512)
    strata_quotas: tuple[int, ...] | None = None
    """Samples of each stratum in a rank's batch; None for the dataset's shares."""
    row_length: int = 512


class Shares(NamedTuple):
    """The samples of a step, rank by rank."""

    ids_S: Integers
    bounds_R1: Integers

    def of(self, rank: int) -> Integers:
        """Return the ids of one rank's samples."""
        return self.ids_S[self.bounds_R1[rank] : self.bounds_R1[rank + 1]]

    def counts(self) -> Integers:
        """Return the number of each rank's samples: [R]."""
        return np.diff(self.bounds_R1)

    def sums(self, values_S: NDArray[np.number]) -> Floats:
        """Sum a value of each sample by rank: [R]."""
        return np.diff(np.concatenate(([0.0], np.cumsum(values_S)))[self.bounds_R1])


class StepPlan(NamedTuple):
    """The samples that each rank reads and those that it trains on; they differ only if ranks exchange samples."""

    drawn: Shares
    assigned: Shares


class Planner:
    """Plans any step of a run for all ranks."""

    def __init__(
        self,
        entries_N: Index,
        balance: Balance,
        global_batch_size: int,
        seed: int,
        nodes: int,
        ranks_per_node: int,
        assign: Assign | None = None,
    ) -> None:
        """Plan by `balance`; `assign` replaces the assignment by cost of methods `planned` and `planned_local`."""
        self._assign = assign
        self._entries_N = entries_N
        self.balance = balance
        self._nodes = nodes
        self.ranks = nodes * ranks_per_node
        self._order: RandomOrder | WindowedOrder | QuotaOrder | packing.PackedOrder
        match balance.method:
            case "stratified" | "stratified_presort" if balance.strata_quotas is not None:
                self._order = QuotaOrder(entries_N, balance.strata_edges, balance.strata_quotas, self.ranks, seed)
            case "stratified" | "stratified_presort":
                plan = partial(plan_strata, balance.strata_edges)
                self._order = WindowedOrder(entries_N, global_batch_size, seed, plan)
            case "planned_local":
                self._order = WindowedOrder(entries_N, global_batch_size, seed, partial(plan_nodes, nodes))
            case "packed":
                from bertbench.balance.packing import PackedOrder  # noqa: PLC0415 - few runs need it

                self._order = PackedOrder(entries_N, global_batch_size, seed, self.ranks, balance.row_length)
            case _:
                self._order = RandomOrder(len(entries_N), global_batch_size, seed)

    @property
    def groups(self) -> int:
        """Return the number of groups of ranks that share their samples: one in all, one per node, or one per rank."""
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
        assigned = self._assigned(drawn.ids_S)
        return StepPlan(drawn if self.balance.method in EXCHANGING else assigned, assigned)

    def check_world(self, nodes: int, ranks: int) -> None:
        """Raise ConfigError if a run begun on `nodes` and `ranks` would see its samples in another order.

        With most methods the samples of a step depend on the global batch and the seed alone. `planned_local` divides
        the data among nodes, and `packed` counts rows by rank.
        """
        match self.balance.method:
            case "planned_local":
                self._require_equal("nodes", nodes, self._nodes)
            case "packed":
                self._require_equal("ranks", ranks, self.ranks)

    def _require_equal(self, unit: str, begun: int, now: int) -> None:
        if begun != now:
            raise ConfigError(
                f"the run began on {begun} {unit} and now has {now}; data.balance {self.balance.method} orders samples "
                f"by {unit}: resume with {begun}, or restart with data.balance planned, which resumes with any number"
            )

    def lengths(self, shares: Shares) -> Integers:
        """Return the number of tokens of each sample, in the samples' order: [S]."""
        return lengths_of(self._entries_N[shares.ids_S])

    def loads(self, plan: StepPlan) -> Floats:
        """Return the cost of each rank's samples: [R]."""
        return plan.assigned.sums(self.balance.cost.of_length[self.lengths(plan.assigned)])

    def samples_by_stratum(self, steps: int) -> Integers:
        """Count the samples of each stratum that all ranks draw in the first `steps` steps: [strata]."""
        counts = np.zeros(len(self.balance.strata_edges), np.int64)
        for step in range(steps):
            counts += count_strata(self._entries_N[self._order.step(step)], self.balance.strata_edges)
        return counts

    def stratum_sizes(self) -> Integers:
        """Return the number of samples of each stratum in the dataset: [strata]."""
        return count_strata(self._entries_N, self.balance.strata_edges)

    def _drawn(self, ids: Integers) -> Shares:
        if ids.ndim == 1:
            return Shares(ids, np.arange(self.ranks + 1) * (len(ids) // self.ranks))
        is_sample_RC = ids >= 0  # packed rows
        return Shares(ids[is_sample_RC], offsets(is_sample_RC.sum(axis=1)))

    def _assigned(self, ids_S: Integers) -> Shares:
        balance = self.balance
        ranks = self.ranks // self.groups
        lengths_GS = lengths_of(self._entries_N[ids_S]).reshape(self.groups, -1)
        if balance.method in EXCHANGING:
            rank_GS = assign_by_length(lengths_GS, ranks, balance.row_order)
        elif self._assign is not None:
            rank_GS = self._assign(lengths_GS, ranks)
        else:
            rank_GS = assign_by_cost(lengths_GS, ranks, balance.cost.of_length, balance.equal_counts)
        rank_S = (rank_GS + ranks * np.arange(self.groups)[:, None]).ravel()
        by_rank = np.argsort(rank_S.astype(np.uint16), kind="stable")
        return Shares(ids_S[by_rank], offsets(np.bincount(rank_S, minlength=self.ranks)))


def efficiency(loads_R: Floats) -> float:
    """Return the mean load divided by the largest load: the share of the step in which the average rank works."""
    return float(loads_R.mean() / loads_R.max())


BYTES_OF_WORD = 2
"""An exchange of samples sends 16-bit words."""


def words_sent(entries_N: Index, shares: Shares) -> Integers:
    """Return the number of 16-bit words that hold each rank's samples in an exchange: [R].

    Token ids, masked positions and their labels take a word each; segments and pair labels take half a word.
    """
    entries_S = entries_N[shares.ids_S]
    tokens_R = shares.sums(lengths_of(entries_S))
    masked_R = shares.sums(masked_of(entries_S))
    half_words_R = tokens_R + shares.counts()
    return (tokens_R + 2 * masked_R + (half_words_R + 1) // 2).astype(np.int64)


def bytes_received(entries_N: Index, planner: Planner, plan: StepPlan) -> float:
    """Return the bytes that a rank receives in a step's exchange, on average; 0 for methods without an exchange."""
    if planner.balance.method not in EXCHANGING:
        return 0.0
    largest_G = words_sent(entries_N, plan.drawn).reshape(planner.groups, -1).max(axis=1)
    other_ranks = planner.ranks // planner.groups - 1
    return float(BYTES_OF_WORD * other_ranks * largest_G.mean())
