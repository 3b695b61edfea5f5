"""The layouts that docs/parallelism.md compares take at least the time, and the memory, that `estimate` computes."""

import json
from typing import Any

import pytest

from bertbench.cli.main import main
from tests.conftest import Captured
from tests.docs.listing import REPOSITORY

PAGE = (REPOSITORY / "docs" / "parallelism.md").read_text().replace("\n", " ")


@pytest.mark.slow  # ten seconds
def test_the_three_ways_to_split_a_model_take_the_page_s_milliseconds_and_gigabytes(capsys: Captured) -> None:
    main(["estimate", "bert10b_n128", "--layouts", "--json"])
    layouts = json.loads(capsys.readouterr().out)["layouts"]

    def figures(between: str, **split: Any) -> str:
        (row,) = [row for row in layouts if split.items() <= row.items()]
        return f"{row['least_step_ms']:,.0f} ms{between}{row['memory_gb_per_gpu']:.0f} GB"

    assert figures(" per step, and ", tensor=8, pipeline=1) in PAGE
    assert figures(" and ", tensor=4, pipeline=16, fits=True) in PAGE
    assert figures(", and ", fully_shard=True) in PAGE
    assert layouts[0]["tensor"] == 4, "the page calls it the fastest"
    assert layouts[0]["pipeline"] == 16, "the page calls it the fastest"
