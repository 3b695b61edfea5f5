"""The tables and pictures on the pages agree with the records of today."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.main import main
from tests.conftest import Captured
from tests.docs.listing import PAGES as LISTED
from tests.docs.listing import REPOSITORY

SHOWN: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "shown.py"))
DRAWING: dict[str, Any] = runpy.run_path(str(REPOSITORY / "docs" / "site" / "pictures.py"))
PAGES = [page for page in SHOWN["pages"]() if "<!-- shown: " in page.read_text()]
SIMULATED = json.loads((REPOSITORY / "results" / "simulated" / "balance.json").read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_records_of_today(page: Path) -> None:
    assert SHOWN["current"](page.read_text()) == page.read_text(), "run python docs/site/shown.py"


@pytest.mark.parametrize("file", DRAWING["PICTURES"])
def test_a_picture_is_drawn_from_the_records_and_a_page_describes_it_as_of_today(file: str) -> None:
    picture = DRAWING["drawn"](file)
    assert picture.svg.startswith("<?xml") and "</svg>" in picture.svg
    described = re.compile(rf"!\[{re.escape(picture.description)}\]\((docs/)?{file}\)")
    assert any(described.search(page.read_text()) for page in LISTED), (
        f"run python docs/site/pictures.py; a page needs ![{picture.description}]({file})"
    )


@pytest.mark.slow  # two minutes
@pytest.mark.parametrize("command", SIMULATED)
def test_a_simulated_record_is_what_balance_computes(command: str, capsys: Captured) -> None:
    if "--lengths data/cpu_demo" in command and not Path("data/cpu_demo").exists():
        pytest.skip("make data/cpu_demo with: bertbench data prepare --system cpu_demo")
    main([*command.split()[1:], "--json"])
    computed = set()
    for row in json.loads(capsys.readouterr().out):
        load_efficiency = round(row["load_efficiency"], 4)
        received = round(row["bytes_per_rank_per_step"])
        computed.add((row["method"], row["gpus"], row["local_batch"], load_efficiency, received))
    assert {tuple(row.values()) for row in SIMULATED[command]} <= computed
