"""Draw the verdicts on the paper's claims as one page."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertbench.report.charts import Axis, Bar, Series, bars, lines
from bertbench.report.page import page, panels, paragraph, section, table
from lab.study.page import means
from lab.study.paper import PARTS, Verdict, ablation, efficiencies, verdicts
from lab.study.paper_questions import questions

_ABLATION = {
    "all_ideas": "all three ideas",
    "without_balance": "without strata and sort",
    "without_bucket": "clip before in place of bucket",
    "without_adam": "LAMB in place of ADAM",
    "planned": "ours: dealt by cost, clip by bucket, ADAM",
}
HEAD = ("claim", "theirs", "ours", "verdict", "from")
QUESTION_HEAD = ("question", "answer", "from")
ABLATION_HEAD = ("1,024 A100s, batch 16,384", "seconds", "samples", "of all ideas' time")


def table_rows(found: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """Return the verdicts as cells under `HEAD`."""
    return [(*verdict[:4], ", ".join(verdict.parts) or "published_bert.csv") for verdict in found]


def ablation_rows(answers: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the ablation as cells under `ABLATION_HEAD`."""
    return [
        (_ABLATION[name], f"{seconds:.1f}", f"{samples:,.0f}", f"{share:.2f}")
        for name, seconds, samples, share in ablation(answers)
    ]


def question_rows(answers: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the questions as cells under `QUESTION_HEAD`."""
    return [(*answer[:2], ", ".join(answer.parts)) for answer in questions(answers)]


def page_of(answers: Mapping[str, Any], machine: str) -> str:
    """Return one self-contained HTML file."""
    commands = [(part.name, part.command) for part in PARTS]
    return page(
        "The paper, answered",
        paragraph(
            "Each claim of arXiv 2402.02447 and this project's result. Balance is simulated with training's own "
            f"code, seconds on 1,024 GPUs are forecasts, samples come from small runs here; {machine}."
        ),
        section("Claims", table(HEAD, table_rows(verdicts(answers)))),
        section(
            "Each idea switched off in turn", panels(_ablation(answers)), table(ABLATION_HEAD, ablation_rows(answers))
        ),
        section("Questions", table(QUESTION_HEAD, question_rows(answers)), panels(means(answers["buckets"]["rows"]))),
        section("Load balance", panels(_by_batch(answers["batch"]), _strata(answers), _nodes(answers))),
        section("Commands", table(("part", "command"), commands)),
    )


def _ablation(answers: Mapping[str, Any]) -> str:
    rows = [Bar(_ABLATION[name], {"seconds": seconds}, f"{share:.2f}") for name, seconds, _, share in ablation(answers)]
    return bars("Forecast, as a share of all ideas' time", rows, Axis("seconds", low=0.0))


def _by_batch(rows: Sequence[Mapping[str, Any]]) -> str:
    found = efficiencies(rows)
    series = [
        Series(method, [(batch, found[method, batch]) for name, batch in found if name == method])
        for method in dict.fromkeys(name for name, _ in found)
    ]
    return lines("1,024 GPUs by samples a GPU", series, Axis("samples a GPU", base=2), Axis("efficiency", high=1.0))


def _strata(answers: Mapping[str, Any]) -> str:
    return _over("By number of strata, 16 samples a GPU", "strata", answers)


def _nodes(answers: Mapping[str, Any]) -> str:
    return _over("By GPUs of a node, 16 samples a GPU", "node", answers)


def _over(title: str, prefix: str, answers: Mapping[str, Any]) -> str:
    """Draw efficiency by the number that the parts' names end with."""
    points: dict[str, list[tuple[float, float]]] = {}
    for part in PARTS:
        if part.name.startswith(f"{prefix}_"):
            for (method, _), share in efficiencies(answers[part.name]).items():
                points.setdefault(method, []).append((float(part.name.split("_")[1]), share))
    series = [Series(method, own) for method, own in points.items()]
    return lines(title, series, Axis(prefix, base=2), Axis("efficiency", high=1.0))
