"""What pages say of the studies is what results/studies/ holds, as rounded there."""

import json
from statistics import median
from typing import Any

from tests.docs.listing import REPOSITORY
from tests.docs.test_figures import DOCS, rows, text


def study(name: str) -> Any:
    return json.loads((REPOSITORY / "results" / "studies" / f"{name}.json").read_text())


def ratio(one: dict[str, Any]) -> str:
    return f"{one['samples']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def test_the_table_of_optimizers_is_that_of_the_study() -> None:
    pooled = {(one["arm"], one["against"], one["cells"]): one for one in study("optimizer")["pooled"]}
    names = {"LAMB": "lamb", "Muon": "muon", "SOAP": "soap", "schedule-free": "schedule_free"}
    shown = rows((DOCS / "optimizers.md").read_text(), "## Samples to target")
    assert [row[0] for row in shown] == list(names)
    for name, *cells in shown:
        of = {start: pooled[names[name], "adam", start] for start in ("all", "random", "checkpoint")}
        assert cells == [*map(ratio, of.values()), f"{of['all']['seconds']:.2f}"], name


def test_the_table_of_layouts_is_that_of_the_study() -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in study("parallel"):
        found.setdefault(row["layout"], []).append(row)
    fields = ("samples_per_s", "model_flop_utilisation")
    of_cores = {layout: of for layout, of in found.items() if of[0]["ranks"] <= 2}
    medians = {layout: [median(row[field] for row in of) for field in fields] for layout, of in of_cores.items()}
    expected = [[name, f"{rate:.0f}", f"{mfu:.1%}"] for name, (rate, mfu) in medians.items()]
    shown = rows((DOCS / "studies.md").read_text(), "## Parallel layouts")
    assert [[cell.replace(" %", "%") for cell in row] for row in shown] == expected


def shares(one: dict[str, Any], digits: int) -> list[str]:
    """Mean, low and high of a difference in per cent of what it is taken from."""
    return [f"{100 * one['difference'][end] / one['reference']:+.{digits}f}" for end in ("mean", "low", "high")]


def test_the_differences_of_compression_are_those_of_the_study() -> None:
    shown = text("studies.md").replace("95 % interval ", "")
    for one, digits in zip(study("compression")["comparisons"], (1, 0), strict=True):
        assert "{} % ({} to {})".format(*shares(one, digits)) in shown


def test_the_differences_of_clip_modes_are_those_of_the_study() -> None:
    found = study("clip_ranks")
    expected = []
    for tuned, equal in zip(found["comparisons"], found["at_equal_values"], strict=True):
        mode, reference = (tuned["difference"][name].split("_")[0] for name in ("arm", "against"))
        cells = ["{} ({} to {})".format(*shares(one, 1)) for one in (equal, tuned)]
        expected.append([str(tuned["ranks"]), f"`{mode}` less `{reference}`", *cells])
        assert "{} % ({} to {})".format(*shares(equal, 1)) in text("paper.md")
    assert rows((DOCS / "clipping.md").read_text(), "Samples, in %") == expected
