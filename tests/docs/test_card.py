"""What the tutorial says of MLPerf's BERT and of the demo agrees with the system files."""

import re

import pytest

from bertbench.config import System, load_system
from bertbench.config.closed import EVALUATION_SAMPLES
from tests.docs.listing import REPOSITORY

CARD = (REPOSITORY / "docs" / "tutorial.md").read_text().partition("## What is trained")[2]
ROWS = {name: cells for name, *cells in (row.split(" | ") for row in re.findall(r"^\| (.+) \|$", CARD, re.MULTILINE))}


def sizes(system: System) -> set[str]:
    model = system.model
    return {f"{model.layers} layers", f"hidden {model.hidden_size}", f"{model.attention_heads} heads"}


@pytest.mark.parametrize(("column", "name"), [(0, "dgxa100_n1"), (1, "cpu_demo")])
def test_the_card_has_each_systems_sizes_target_and_division(column: int, name: str) -> None:
    system = load_system(name)
    cells = {row: of[column] for row, of in ROWS.items() if len(of) == 2}
    assert sizes(system) <= set(re.split(r"[:,;] ", cells["model"]))
    assert f"to {system.model.max_positions} tokens" in cells["data"]
    assert float(cells["target"].split()[-1]) == system.evaluation.target
    assert cells["division"].startswith(system.hardware.division)
    assert system.optimizer.name in cells["optimizer"].lower()


def test_the_card_has_the_demos_own_values() -> None:
    system = load_system("cpu_demo")
    demo = {row: of[1] for row, of in ROWS.items() if len(of) == 2}
    recipe = system.data.recipe
    assert recipe is not None
    assert demo["evaluation"] == f"every {system.evaluation_interval:,} samples"
    assert f"feed-forward {system.model.feed_forward_size}, vocabulary {system.model.vocab_size}" in demo["model"]
    assert demo["held out"].startswith(f"{recipe.held_out_samples:,} samples")
    assert f"{system.model.initial_weights}`" in demo["start"]
    assert f"deviation {system.model.initializer_range:g} instead of" in CARD.replace("\n", " ")
    assert system.model.hidden_dropout == 0 and "no dropout" in CARD
    assert recipe.cut_to_target and "`cut_to_target`" in CARD
    assert ROWS["held out"][0] == f"{EVALUATION_SAMPLES:,} samples"
