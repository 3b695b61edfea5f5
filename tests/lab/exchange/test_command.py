"""The command runs every variant on real processes and prints their rows."""

import pytest

from lab.bench.exchange import VARIANTS
from tests.conftest import Answer


@pytest.mark.slow
def test_the_command_runs_every_variant_and_counts_as_the_formulas_do(answer: Answer) -> None:
    rows = answer("lab", "exchange", "--steps", 3)["variants"]
    assert [row["variant"] for row in rows] == list(VARIANTS)
