"""Answer the questions that the paper leaves open, each from the parts of `lab paper`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lab.study.paper import PARTS, Json
from lab.study.paper_claims import efficiencies, in_shares

_METHODS = ("none", "stratified_presort", "planned")


class Answer(NamedTuple):
    """One question and its answer."""

    question: str
    answer: str
    parts: tuple[str, ...]
    """Names of the parts that it is derived from."""


def questions(answers: Json) -> list[Answer]:
    """Return the answers that the parts give."""
    by_batch = efficiencies(answers["batch"])
    buckets = (f"{pair['difference']['arm']} {in_shares(pair)}" for pair in answers["buckets"]["comparisons"])
    return [
        *_local_sort(answers),
        Answer(
            "Why divide the threshold by the root of the number of buckets?",
            "samples less those of one bucket: " + ", ".join(buckets),
            ("buckets",),
        ),
        Answer(
            "How much communication is hidden, by clip mode and bandwidth?", _overlap(answers["overlap"]), ("overlap",)
        ),
        Answer("2 or 4 samples a GPU?", "; ".join(f"{n}: {_methods(by_batch, n)}" for n in (2, 4)), ("batch",)),
        Answer(
            "Other lengths: the demo's corpus, up to 32 tokens?",
            _methods(efficiencies(answers["corpus"]), 16),
            ("corpus_data", "corpus"),
        ),
        Answer("A causal model's cost?", _methods(efficiencies(answers["causal"]), 16), ("causal",)),
    ]


def _local_sort(answers: Json) -> list[Answer]:
    """Return what the number of strata and of GPUs in a node do to the local sort."""
    local = {
        part.name: row
        for part in PARTS
        if part.name.startswith(("strata_", "node_"))
        for row in answers[part.name]
        if row["method"] == "stratified_presort"
    }
    strata, nodes = (tuple(name for name in local if name.startswith(which)) for which in ("strata", "node"))
    sorted_of = {which: ", ".join(f"{local[name]['efficiency']:.3f}" for name in which) for which in (strata, nodes)}
    kilobytes = ", ".join(f"{local[name]['bytes_per_rank_per_step'] / 1e3:.0f}" for name in nodes)
    return [
        Answer("How many strata?", f"efficiency at 16 samples a GPU with 1, 2, 4 and 8: {sorted_of[strata]}", strata),
        Answer(
            "How many GPUs in a node?",
            f"with 2, 4, 8 and 16: {sorted_of[nodes]}; KB a GPU and step: {kilobytes}",
            nodes,
        ),
    ]


def _methods(found: Mapping[tuple[str, int], float], batch: int) -> str:
    return ", ".join(f"{method} {found[method, batch]:.3f}" for method in _METHODS)


def _overlap(rows: Sequence[Json]) -> str:
    if not rows:
        return "not measured: needs Linux, root and iproute2"
    found: dict[float | None, list[str]] = {}
    for row in rows:
        if row["hidden"] is not None:  # `before`, which can't hide any, is what the others are compared with
            undecided = " (not decided)" if row["verdict"] == "not decided" else ""
            shown = f"{row['mode']} {row['hidden']:.0%}{undecided}"
            found.setdefault(row["bandwidth_mbit"], []).append(shown)
    return "; ".join((f"{speed:,.0f} Mbit/s: " if speed else "") + ", ".join(own) for speed, own in found.items())
