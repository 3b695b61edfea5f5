"""`bertbench balance` and related benchmarks, as a user calls them."""

from pathlib import Path

import numpy as np
import pytest

from bertbench.balance.simulate import VARIANTS, population
from bertbench.data.store.columns import lengths_of
from bertbench.data.store.dataset import Dataset
from tests.conftest import Answer, Printed, write_json

SMALL = ("--gpus", "2,16", "--batch", "3", "--steps", "2")


@pytest.fixture
def histogram(tmp_path: Path) -> str:
    """Sequences of 2 and 5 tokens, three to one."""
    return write_json(tmp_path / "lengths.json", {"counts": [0, 3, 0, 0, 1]})


def test_every_variant_is_simulated_on_every_world(histogram: str, answer: Answer) -> None:
    outcomes = answer("balance", "--lengths", histogram, *SMALL)
    assert [(row["gpus"], row["method"]) for row in outcomes] == [(n, name) for n in (2, 16) for name in VARIANTS]
    for row in outcomes:
        assert {"method", "gpus", "bytes_per_rank_per_step", "plan_ms_per_step"} <= set(row)
        assert 0 < row["load_efficiency"] <= 1
        assert row["local_batch"] == 3
        exchanges = row["method"].split("_raster")[0] in ("presort", "stratified_presort", "global_exchange")
        assert (row["bytes_per_rank_per_step"] > 0) == exchanges
    by_method = {row["method"]: row["load_efficiency"] for row in outcomes if row["gpus"] == 16}
    assert by_method["planned"] > by_method["none"]


def test_plans_are_scored_by_another_cost_and_with_noise(histogram: str, answer: Answer) -> None:
    words = ["balance", "--lengths", histogram, *SMALL, "--methods", "none,planned"]
    exact, wrong, noisy = (answer(*words, *more) for more in ([], ["--attention", "0"], ["--noise", "0.5"]))
    for dealt, scored, shaken in zip(exact, wrong, noisy, strict=True):
        assert scored["load_efficiency"] == scored["token_efficiency"] == dealt["token_efficiency"]
        assert shaken["token_efficiency"] == dealt["token_efficiency"]
        assert shaken["load_efficiency"] < 0.95
    # the largest of 16 normal numbers is 1.77 standard deviations from 0: exp(0.25 / 2 - 0.5 * 1.77) = 0.47
    assert noisy[-1]["load_efficiency"] == pytest.approx(0.47, abs=0.15)


def test_a_data_folder_and_its_index_stand_for_the_same_lengths(tiny_folder: Path) -> None:
    for path in (tiny_folder, tiny_folder / "train" / "index.npy"):
        assert np.array_equal(population(path, 1, 0), Dataset.open(tiny_folder, "train").entries_N)


def test_a_histogram_gives_random_samples_of_its_lengths(histogram: str) -> None:
    lengths = lengths_of(population(Path(histogram), 1, 10_000))
    assert set(lengths) == {2, 5}
    assert np.mean(lengths == 2) == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 10_000))


REFUSED = {
    "--methods magic": "'magic'",
    "--gpus 8,x": "--gpus 8,x",
    "--gpus 12": "--gpus 12",
    "--lengths nowhere.json": "nowhere.json",
    "--attention=nan": "--attention nan",
    "--noise=2": "--noise 2",
}


@pytest.mark.parametrize(("words", "expected"), REFUSED.items())
def test_a_mistake_is_one_message(words: str, expected: str, printed: Printed) -> None:
    assert expected in printed("balance", *words.split(), code=2)


@pytest.mark.slow
def test_bench_balance_prints_the_measured_and_the_simulated_ratio(answer: Answer) -> None:
    measured = answer("lab", "assignment", "--batch", "1", "--steps", "1")
    assert set(measured["step_ms"]) == {"none", "planned"}
    assert measured["ratio"] > 0
    assert measured["simulated_ratio"] >= 1


def test_causal_costs_are_those_of_a_causal_model(tmp_path: Path, answer: Answer) -> None:
    fours = write_json(tmp_path / "fours.json", {"counts": [0, 0, 0, 1]})
    words = ["balance", "--lengths", fours, "--gpus", 2, "--batch", 3, "--steps", 1]
    found = answer(*words, "--methods", "none,planned", "--causal")
    none, planned = (row["cost_per_step"] for row in found)
    # per token 144 (4 + 2 x 4) 1024^2 + 6 (1024 + 30,522) 1024, per pair 12 x 24 x 1024; six sequences of 4 tokens
    assert none == planned == 6 * (4 * (1_811_939_328 + 193_818_624) + 4**2 * 294_912)


def test_strata_that_separate_lengths_balance_better(histogram: str, answer: Answer) -> None:
    found = []
    for edges in ("5", "2,5"):
        words = ["balance", "--lengths", histogram, "--gpus", 16, "--batch", 4, "--steps", 4]
        (row,) = answer(*words, "--methods", "stratified", "--strata-edges", edges)
        found.append(row["load_efficiency"])
    assert found[1] > 0.99 > found[0]  # three of 2 tokens and one of 5 for every GPU


def test_quotas_are_simulated_beside_the_shares_of_the_dataset(
    histogram: str, answer: Answer, printed: Printed
) -> None:
    words = ["balance", "--lengths", histogram, "--gpus", 16, "--steps", 4, "--strata-edges", "2,5"]
    methods = ["--methods", "none,stratified,stratified_presort"]
    # half of a GPU's four samples have 5 tokens, where the dataset has a quarter: 2 x 2 + 2 x 5 in every step
    rows = answer(*words, "--batch", 4, *methods, "--strata-quotas", "2,2")
    tokens = {row["method"]: row["tokens_per_step"] / 16 for row in rows}
    assert list(tokens) == ["none", "stratified", "stratified 2,2", "stratified_presort", "stratified_presort 2,2"]
    assert tokens["stratified 2,2"] == tokens["stratified_presort 2,2"] == 14
    assert tokens["stratified"] == pytest.approx(11, abs=0.1)
    for quotas in ("2,2,1", "2,3", "-1,5"):
        assert "quotas" in printed(*words, "--batch", 4, *methods, f"--strata-quotas={quotas}", code=2)
    falling = [*words[:-1], "5,2", "--batch", 4, *methods, "--strata-quotas", "1,3"]
    assert "--strata-edges 5,2" in printed(*falling, code=2), "sorted edges alone would swap the quotas"
    alone = [*words, "--batch", 4, "--methods", "planned", "--strata-quotas", "2,2"]
    assert "planned" in printed(*alone, code=2)
