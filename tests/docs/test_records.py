"""What pages show of results/bench/ is what was recorded, and the README's picture is drawn of today's records."""

import json
import re
import runpy
from typing import Any

import pytest

from tests.docs.listing import REPOSITORY
from tests.docs.test_figures import rows

SHOWN: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "shown.py"))
PICTURE: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "picture.py"))


def recorded(name: str) -> Any:
    return json.loads((REPOSITORY / "results" / "bench" / "intel_xeon_amx" / f"{name}.json").read_text())


@pytest.mark.parametrize("page", SHOWN["pages"](), ids=lambda page: page.name)
def test_a_recorded_table_is_shown_as_it_was_printed(page: Any) -> None:
    assert SHOWN["current"](page.read_text()) == page.read_text(), "run python docs/site/shown.py"


def test_some_page_shows_a_record() -> None:
    assert any("<!-- results/bench/" in page.read_text() for page in SHOWN["pages"]())


def test_a_changed_table_is_noticed() -> None:
    (page,) = [page for page in SHOWN["pages"]() if page.name == "performance.md"]
    text = page.read_text()
    changed = text.replace("$ bertbench lab", "$ bertbench  lab", 1)
    assert changed != text
    assert SHOWN["current"](changed) == text


def test_the_picture_is_of_todays_records() -> None:
    drawn = (REPOSITORY / "docs" / "demo.svg").read_text()
    assert drawn == PICTURE["current"](), "run python docs/site/picture.py"


def test_the_step_s_ratios_are_those_recorded() -> None:
    tables = "\n".join(recorded("step")["printed"]).split("\n\n")
    (small, bf16, medium, medium_bf16) = (
        " and ".join(re.findall(r"([\d.]+) x as fast", table))
        for name in ("small, fp32", "small, bf16", "medium, fp32", "medium, bf16")
        for table in tables
        if table.startswith(name)
    )
    page = " ".join((REPOSITORY / "docs" / "performance.md").read_text().split())
    assert f"In bf16 it is {bf16} times as fast, at medium in fp32 {medium}, in bf16 {medium_bf16} (" in page
    rival, stock = small.split(" and ")
    said = f"is {stock} times as fast as the best stock transformers variant and {rival} times as fast as the strongest"
    assert said in " ".join((REPOSITORY / "README.md").read_text().split())


def test_the_time_to_the_target_is_that_recorded() -> None:
    (ratio,) = re.findall(r"([\d.]+) times as fast to the target", "\n".join(recorded("train")["printed"]))
    said = f"reaches its target {float(ratio):.1f} times as fast as the best set-up of Hugging Face's Trainer"
    assert said in " ".join((REPOSITORY / "README.md").read_text().split())


def test_the_gains_at_a_latency_are_those_recorded() -> None:
    record = recorded("links_5ms")
    times = {line.split()[2]: line.split()[-1] for line in record["printed"][1:]}
    said = f"`local_sgd` is {times['local_sgd']} and `diloco` {times['diloco']} times as fast"
    assert said in (REPOSITORY / "docs" / "links.md").read_text()


def test_the_exposed_communication_is_that_recorded() -> None:
    found = recorded("overlap")
    alone = {line.split()[0]: line.split()[1] for line in found["printed"][2:]}
    exposed: dict[str, dict[str, float]] = {}
    for row in found["results"]:
        exposed.setdefault(f"{row['bandwidth_mbit']:,.0f}", {})[row["mode"]] = row["exposed_ms"]
    modes = ("none", "after", "before", "bucket")
    expected = [[mbit, alone[mbit], *(f"{by_mode[mode]:.0f}" for mode in modes)] for mbit, by_mode in exposed.items()]
    assert rows((REPOSITORY / "docs" / "clipping.md").read_text(), "Exposed milliseconds") == expected


def test_the_bubbles_are_those_recorded() -> None:
    found = recorded("layout")["results"]["bubbles"]
    bubbles = {(row["schedule"], row["pipeline"], row["microbatches"]): row for row in found}
    for p, m, formula, *shown in rows((REPOSITORY / "docs" / "parallelism.md").read_text(), "A pipeline's ranks idle"):
        plain, half = (bubbles[name, int(p), int(m)] for name in ("gpipe", "interleaved"))
        assert formula == f"{plain['formula']:.3f}"
        replayed = [f"{bubbles[name, int(p), int(m)]['replayed']:.3f}" for name in ("gpipe", "1f1b", "interleaved")]
        assert shown == [*replayed[:2], f"{replayed[2]} ({half['formula']:.3f})"]


def test_the_cost_of_trackers_is_that_recorded_and_no_more_than_half_a_percent() -> None:
    cost = recorded("track")["results"]["cost"]
    assert cost["ranks"] == cost["processors"]
    assert cost["trackers"] == ["tensorboard", "mlflow", "wandb-offline"]
    slower, low, high = (100 * cost[name] for name in ("slower", "low", "high"))
    assert slower <= 0.5
    said = f"{slower:+.2f} % longer ({low:+.2f} to {high:+.2f})"
    assert said in (REPOSITORY / "docs" / "watching.md").read_text()


def test_soaps_step_is_that_recorded() -> None:
    found = recorded("optim_soap")["results"]
    soap_ms = found["others_mean_ms"]["soap"]
    said = f"{soap_ms / 1e3:.1f} s, {soap_ms / found['adamw_fused_ms']:.0f} times AdamW"
    assert said in (REPOSITORY / "docs" / "performance.md").read_text()
