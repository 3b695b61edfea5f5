"""The table of claims says what the records' numbers say, computed here in another way."""

import json
import math
import re
from statistics import mean
from typing import Any

import pytest

from tests.docs.listing import REPOSITORY

RESULTS = REPOSITORY / "results"
_PAGE = (RESULTS / "README.md").read_text()
_TABLE = re.search(r"<!-- shown: claims -->\n\n(.+?)\n\n", _PAGE, re.DOTALL)
assert _TABLE
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in _TABLE[1].splitlines()[2:]]


def of_record(name: str) -> dict[str, tuple[str, str, str]]:
    """Return figure, interval and seeds of each claim of a record; only its first row names the record."""
    found = {}
    record = ""
    for claim, figure, interval, seeds, *_, link in ROWS:
        record = link or record
        if f"({name})" in record:
            found[claim] = (figure, interval, seeds)
    return found


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def test_every_record_of_a_bench_and_of_a_study_has_a_claim() -> None:
    records = [*RESULTS.glob("bench/*/*.json"), *RESULTS.glob("studies/*.json")]
    assert len(records) > 10
    assert [path for path in records if not of_record(str(path.relative_to(RESULTS)))] == []


@pytest.mark.parametrize("name", ["bench/amd_epyc/step.json", "bench/intel_xeon_amx/step.json"])
def test_a_step_is_compared_with_the_strongest_baseline_whose_batches_are_random(name: str) -> None:
    least: dict[str, float] = {}
    for row in read(name)["results"]["results"]:
        if row["name"] != "bertbench" and not row["biased"]:
            sizes = f"{row['size']}, {row['dtype']}"
            least[sizes] = min(row["ours_is"][0], least.get(sizes, math.inf))
    figures = {claim.rpartition(": ")[2]: figure for claim, (figure, *_) in of_record(name).items()}
    assert figures == {sizes: f"{ratio:.2f}" for sizes, ratio in least.items()}


def test_the_speed_up_to_the_target_is_that_of_the_runs_geometric_means() -> None:
    name = "bench/intel_xeon_amx/train.json"
    courses = read(name)["courses"]
    claimed = of_record(name)
    logarithms = {program: mean(math.log(course[-1][0]) for course in runs) for program, runs in courses.items()}
    for program in [*courses][1:]:
        (claim,) = (claim for claim in claimed if claim.startswith(f"Speed-up to the demo's target over {program} ("))
        ratio = math.exp(logarithms[program] - logarithms["bertbench"])
        assert float(claimed[claim][0]) == pytest.approx(ratio, abs=0.01)  # the record rounds seconds


def test_a_difference_of_samples_is_the_mean_over_seeds_in_per_cent_of_the_second_sides() -> None:
    samples: dict[str, list[float]] = {"topk": [], "none": []}
    for row in read("studies/compression.json")["rows"]:
        if row["arm"] in samples:
            samples[row["arm"]].append(row["samples_to_target"])
    difference = 100 * (mean(samples["topk"]) / mean(samples["none"]) - 1)
    figure, _, seeds = of_record("studies/compression.json")["Samples of `topk` minus those of `none`"]
    assert (figure, seeds) == (f"{difference:+.1f} %", str(len(samples["none"])))


def test_a_claim_is_called_significant_only_after_holms_correction() -> None:
    # of nine tests, two intervals leave out 0: +1.8 to +11.2 % with p 0.009, and +2.0 to +13.4 % with p 0.011
    ((figure, interval, _),) = of_record("studies/buckets.json").values()
    assert (figure, interval) == ("-1.1 to +7.7 %", "-3.8 to +13.4, not significant")
    study = read("studies/clip.json")
    significant = [pair for pair in (*study["comparisons"], *study["at_equal_values"]) if pair["holm_p"] <= 0.05]
    claimed = [interval for _, interval, _ in of_record("studies/clip.json").values() if "not" not in interval]
    assert len(claimed) == len(significant)
