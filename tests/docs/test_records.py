"""What pages show of records, and the picture, are what the records hold today."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli import main
from tests.conftest import Captured
from tests.docs.listing import REPOSITORY

SHOWN: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "shown.py"))
PICTURE: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "picture.py"))
PAGES = [page for page in SHOWN["pages"]() if "<!-- shown: " in page.read_text()]
SIMULATED = json.loads((REPOSITORY / "results" / "simulated" / "balance.json").read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_its_records_as_they_are(page: Path) -> None:
    assert SHOWN["current"](page.read_text()) == page.read_text(), "run python docs/site/shown.py"


def test_the_picture_is_of_todays_records() -> None:
    drawn = (REPOSITORY / "docs" / "demo.svg").read_text()
    assert drawn == PICTURE["current"](), "run python docs/site/picture.py"


@pytest.mark.slow  # two minutes
@pytest.mark.parametrize("command", SIMULATED)
def test_a_simulated_record_is_what_balance_computes(command: str, capsys: Captured) -> None:
    if "--lengths data/cpu_demo" in command and not Path("data/cpu_demo").exists():
        pytest.skip("make data/cpu_demo with: bertbench data prepare --system cpu_demo")
    main([*command.split()[1:], "--json"])
    computed = [
        (row["method"], row["gpus"], row["batch"], round(row["efficiency"], 4), round(row["bytes_per_rank_per_step"]))
        for row in json.loads(capsys.readouterr().out)
    ]
    assert {tuple(row.values()) for row in SIMULATED[command]} <= set(computed)
