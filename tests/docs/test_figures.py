"""Every figure that the docs show as a command's output is what the command prints today.

Left out are what depends on the machine or its texts: seconds and milliseconds that were measured, accuracies and
features of runs, and MLCommons' files, which aren't here. Figures in sentences are compared as rounded there.
"""

import json
import re
from collections.abc import Callable
from statistics import median

import pytest

from bertbench.balance.cost import BERT_LARGE
from bertbench.forecast.calibrate import calibration
from tests.docs.conftest import Done
from tests.docs.listing import REPOSITORY, blocks

Printed = Callable[[str], Done]
README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"


def text(name: str) -> str:
    """A page with its lines joined: a sentence may break anywhere."""
    return " ".join((DOCS / name).read_text().split())


def rows(page: str, after: str) -> list[list[str]]:
    """The body of the first Markdown table behind some words of a page, as cells."""
    _, found, rest = page.partition(after)
    assert found, f"the page no longer says {after!r}"
    table = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in table[0].splitlines()[2:]]


def test_the_results_in_the_readme_are_what_report_prints(printed: Printed) -> None:
    (shown,) = [block for block in blocks(README) if block.startswith("cpu_demo\n")]
    assert "10 of 10 runs reached the target" in shown
    assert printed("bertbench report results/cpu_demo").output.startswith(shown)


def test_the_errors_of_the_forecast_are_those_of_its_validation(printed: Printed) -> None:
    found = json.loads(printed("bertbench predict --validate --json").output)
    others = [abs(row["predicted_min"] / row["published_min"] - 1) for row in found["others"]]
    page = text("running.md")
    assert f"Held against each of the {len(found['systems'])} with that row left out" in page
    assert (
        f"median error is {found['median_error']:.1%} and the worst {found['worst_error']:.1%}".replace("%", " %")
        in page
    )
    assert f"The {len(others)} other A100 results" in page
    assert f"off by {median(others):.0%} in the median and {max(others):.0%} at worst".replace("%", " %") in page


@pytest.mark.parametrize(
    ("sentence", "number", "unit", "digits"),
    [
        (r"share of the GPU's peak \(([\d.]+)\)", "compute_share", 1, 2),
        (r"share of the network's rate \(([\d.]+)\)", "network_share", 1, 2),
        (r"each doubling of the nodes \(([\d.]+)\)", "waiting_s", 1e-3, 1),
    ],
)
def test_the_fitted_numbers_of_the_forecast_are_todays(sentence: str, number: str, unit: float, digits: int) -> None:
    shown = re.search(sentence, text("running.md"))
    assert shown
    # Half of the last digit, and a tenth more: a fit ends elsewhere with another release of scipy.
    assert float(shown[1]) == pytest.approx(getattr(calibration(), number) / unit, abs=0.6 * 10**-digits)


def test_the_watched_run_is_the_recorded_one(printed: Printed) -> None:
    command = "bertbench watch results/cpu_demo/bert/result_0.txt --once"
    (shown,) = [block for block in blocks(DOCS / "watching.md") if block.startswith(f"$ {command}\n")]
    _, *lines, rest = shown.splitlines()
    assert (len(lines), rest) == (2, "...")
    assert set(lines) <= {line.strip("│ ") for line in printed(command).output.splitlines()}


def test_the_start_up_of_the_forecast_is_todays(printed: Printed) -> None:
    start_up = re.search(r"start_up +([\d.]+) s", printed("bertbench predict dgxa100_n8 --gpu h200").output)
    assert start_up
    assert f"adds up start-up ({start_up[1]} s" in text("running.md")


@pytest.mark.parametrize("system", ["dgxa100_n128", "bert10b_n128"])
def test_the_layouts_are_those_that_predict_lists(printed: Printed, system: str) -> None:
    command = f"bertbench predict {system} --layouts"
    (shown,) = [block for block in blocks(DOCS / "parallelism.md") if block.startswith(f"$ {command}\n")]
    head, *layouts, best = shown.splitlines()[1:]
    printed_lines = [line.rstrip() for line in printed(command).output.splitlines()]
    assert (head, best) == (printed_lines[0], printed_lines[-1])
    assert len(layouts) > 5
    assert set(layouts) <= set(printed_lines[1:-1])


def test_the_grid_of_ranks_is_what_plan_prints(printed: Printed) -> None:
    (shown,) = [block for block in blocks(DOCS / "parallelism.md") if block.startswith("layout ")]
    lines = [line for line in shown.splitlines() if line.strip() != "..."]
    assert len(lines) == 3
    assert set(lines) <= set(printed("bertbench plan bert10b_n128").output.splitlines())


def test_the_cost_of_a_sequence_is_the_models() -> None:
    cost = BERT_LARGE
    assert f"BERT-Large: {cost.linear / 1e6:,.2f}e6 n + {cost.quadratic / 1e6:.5f}e6 n^2" in text("balance.md")


def simulated(printed: Printed, command: str) -> dict[tuple[str, int, int], tuple[str, str]]:
    """Efficiency, and KB a rank and step, by method, GPUs and samples a GPU."""
    found = json.loads(printed(command).output)
    return {
        (row["method"], row["gpus"], row["batch"]): (
            f"{row['efficiency']:.4f}", f"{row['bytes_per_rank_per_step'] / 1e3:,.0f}",
        )
        for row in found
    }  # fmt: skip


def test_the_readmes_waiting_is_what_balance_simulates(printed: Printed) -> None:
    found = simulated(
        printed, "bertbench balance --gpus 1024 --batch 16 --methods none,planned,stratified_presort --json"
    )
    share = {method: float(efficiency) for (method, _, _), (efficiency, _) in found.items()}
    assert (
        f"1,024 GPUs x 16 work {share['planned']:.1%} of a step, where a plain random deal has them wait for "
        f"{1 - share['none']:.0%} of it and the paper's method for {1 - share['stratified_presort']:.0%}."
    ).replace("%", " %") in " ".join(README.read_text().split())


@pytest.mark.slow  # a minute
def test_the_table_of_methods_is_what_balance_simulates(printed: Printed) -> None:
    found = simulated(printed, "bertbench balance --seed 1 --json")
    sizes = [(8, 16), (1024, 2), (1024, 16)]
    shown = rows((DOCS / "balance.md").read_text(), "## What they reach")
    assert len(shown) == 12
    for name, *cells in shown:
        method = name.strip("`")
        assert cells == [*(found[method, *size][0] for size in sizes), found[method, 1024, 16][1]], method
