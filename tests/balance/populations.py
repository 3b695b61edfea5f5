"""Datasets to plan on: an index only, no samples behind it."""

from bertbench.balance.cost import BERT_LARGE
from bertbench.balance.lengths import draw_lengths, predictions
from bertbench.balance.plan import Balance, Method, Planner
from bertbench.data.store.index import Index, pack


def wikipedia_index(samples: int, seed: int = 3) -> Index:
    """The index of so many samples of Wikipedia's lengths."""
    lengths = draw_lengths(samples, seed)
    return pack(lengths, predictions(lengths))


def planner(
    method: Method, entries: Index, batch: int, nodes: int = 2, ranks: int = 2, seed: int = 11, **settings: object
) -> Planner:
    """A planner for `nodes` nodes of `ranks` ranks."""
    return Planner(entries, Balance(method, BERT_LARGE, **settings), batch, seed, nodes, ranks)  # type: ignore[arg-type]
