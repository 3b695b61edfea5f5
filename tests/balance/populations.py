"""Datasets to plan on, which consist of an index only, without samples."""

from bertbench.balance.cost import BERT_LARGE
from bertbench.balance.plan import Balance, Method, Planner
from bertbench.balance.simulate import drawn_index
from bertbench.data.store.columns import Index


def wikipedia_index(samples: int) -> Index:
    """Return the index of that many samples with Wikipedia's lengths."""
    return drawn_index(samples, seed=3)


def planner(
    method: Method, entries: Index, batch: int, nodes: int = 2, ranks: int = 2, seed: int = 11, **settings: object
) -> Planner:
    """A planner for `nodes` nodes of `ranks` ranks."""
    return Planner(entries, Balance(method, BERT_LARGE, **settings), batch, seed, nodes, ranks)  # type: ignore[arg-type]
