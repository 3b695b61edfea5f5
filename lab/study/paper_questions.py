"""Answer the questions that the paper leaves open, each from the parts of `lab paper`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lab.study.paper import PARTS, ablation, efficiencies, in_shares

_METHODS = ("none", "stratified_presort", "planned")


class Answer(NamedTuple):
    """One question and its answer."""

    question: str
    answer: str
    parts: tuple[str, ...]
    """Names of the parts that it is derived from."""


def questions(answers: Mapping[str, Any]) -> list[Answer]:
    """Return the answers that the parts give."""
    by_batch = efficiencies(answers["batch"])
    return [
        Answer(
            "How many strata?",
            "efficiency at 16 samples a GPU with 1, 2, 4 and 8: " + _sorted(answers, "strata"),
            _named("strata"),
        ),
        Answer(
            "How many GPUs in a node?",
            "with 2, 4, 8 and 16: "
            + _sorted(answers, "node")
            + "; KB a GPU and step: "
            + ", ".join(f"{_local(answers[name])['bytes_per_rank_per_step'] / 1e3:.0f}" for name in _named("node")),
            _named("node"),
        ),
        Answer(
            "A snake or a raster scan?",
            ", ".join(
                f"{batch} samples a GPU: {by_batch['stratified_presort', batch]:.3f} and "
                f"{by_batch['stratified_presort_raster', batch]:.3f}"
                for batch in (2, 16, 48)
            ),
            ("batch",),
        ),
        Answer(
            "Why divide the threshold by the root of the number of buckets?",
            "samples beside one bucket: "
            + ", ".join(f"{pair['difference']['arm']} {in_shares(pair)}" for pair in answers["buckets"]["comparisons"]),
            ("buckets",),
        ),
        Answer(
            "How much communication is hidden, by clip mode and bandwidth?", _overlap(answers["overlap"]), ("overlap",)
        ),
        Answer(
            "What does ADAM need?",
            "{:,.0f} samples by its published runs, LAMB {:,.0f} by its reference points".format(
                *(answers[name]["samples_to_converge"] for name in ("all_ideas", "without_adam"))
            ),
            ("all_ideas", "without_adam"),
        ),
        Answer(
            "How much does each idea add?",
            ", ".join(f"{name.replace('_', ' ')}: {share:.2f} times the time" for name, _, _, share in _less(answers)),
            tuple(name for name, *_ in _less(answers)),
        ),
        Answer(
            "2 or 4 samples a GPU?",
            "; ".join(f"{batch}: {_methods(by_batch, batch)}" for batch in (2, 4)),
            ("batch",),
        ),
        Answer(
            "Other lengths: the demo's corpus, up to 32 tokens?",
            _methods(efficiencies(answers["corpus"]), 16),
            ("corpus_data", "corpus"),
        ),
        Answer("A causal model's cost?", _methods(efficiencies(answers["causal"]), 16), ("causal",)),
    ]


def _named(prefix: str) -> tuple[str, ...]:
    return tuple(part.name for part in PARTS if part.name.startswith(f"{prefix}_"))


def _local(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(row for row in rows if row["method"] == "stratified_presort")


def _sorted(answers: Mapping[str, Any], prefix: str) -> str:
    return ", ".join(f"{_local(answers[name])['efficiency']:.3f}" for name in _named(prefix))


def _methods(found: Mapping[tuple[str, int], float], batch: int) -> str:
    return ", ".join(f"{method} {found[method, batch]:.3f}" for method in _METHODS)


def _less(answers: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    return [row for row in ablation(answers) if row[0].startswith("without_")]


def _overlap(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "not measured: needs two GPUs, or Linux, root and iproute2"
    speeds = dict.fromkeys(row.get("bandwidth_mbit") for row in rows)
    return "; ".join(
        (f"{speed:,.0f} Mbit/s: " if speed else "")
        + ", ".join(f"{row['mode']} {row['hidden']:.0%}" for row in rows if row.get("bandwidth_mbit") == speed)
        for speed in speeds
    )
